package qp

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestReadRevokedMidway checks that the NAK has the PSN of the first response that
// cannot be sent, whatever was sent before.
func TestReadRevokedMidway(t *testing.T) {
	h := hostIn(t, ib.StateRTS)
	p := request(wire.RCReadRequest, peerPSN, nil)
	p.RETH = wire.RETH{VA: memAddr, RKey: h.region.Key(), Len: 3 * 1024}
	h.handle(0, p)
	var out [1]TxPacket
	if n := h.q.NextPackets(0, out[:]); n != 1 || out[0].Opcode != wire.RCReadRespFirst {
		t.Fatalf("got %d packets, the first %v, want one READ response FIRST", n, out[0].Opcode)
	}
	h.must(h.table.Deregister(h.region))
	packets := h.emit(0, 1)
	if len(packets) != 1 || packets[0].AETH.Syndrome != wire.NAKRemoteAccess || packets[0].PSN != peerPSN+1 {
		t.Fatalf("got %d packets, %+v, want a NAK for remote access", len(packets), packets)
	}
	if h.q.State() != ib.StateErr {
		t.Errorf("got a QP in %v, want ERR", h.q.State())
	}
}

// corrupt writes an invalid producer index to a ring.
func corrupt(ring []byte) { binary.NativeEndian.PutUint32(ring[64:], 1<<20) }

// TestCorruptSendRing checks that invalid data in the send ring takes the QP to ERR, and
// that it can be reset then.
func TestCorruptSendRing(t *testing.T) {
	h := hostIn(t, ib.StateRTS)
	corrupt(h.sqBytes)
	h.q.Doorbell(0)
	if got, want := h.outcome(nil), "local work queue catastrophic error, ERR"; got != want ||
		h.q.State() != ib.StateErr {
		t.Errorf("%q in %v, want %q in ERR", got, h.q.State(), want)
	}
	h.must(h.modify(ib.StateReset, ib.QPAttr{}, 0))
}

// TestCorruptRecvRing checks that the peer gets a NAK for a remote operational error.
func TestCorruptRecvRing(t *testing.T) {
	h := hostIn(t, ib.StateRTS)
	corrupt(h.rqBytes)
	h.handle(0, request(wire.RCSendOnly, peerPSN, make([]byte, 8)))
	if h.q.State() != ib.StateErr {
		t.Errorf("got a QP in %v, want ERR", h.q.State())
	}
	packets := h.emit(0, 4)
	if len(packets) != 1 || packets[0].AETH.Syndrome != wire.NAKRemoteOp {
		t.Errorf("got %d packets, %+v, want a NAK for an operational error", len(packets), packets)
	}
	if got, want := h.outcome(nil), "local work queue catastrophic error"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Offsets in a slot of the send ring.
const (
	slotOpcode = 8
	slotFlags  = 9
	slotNumSGE = 10
	slotInline = 12
	slotSRQ    = 20
	slotAddr   = 24
)

// TestInvalidRequest checks that a request which no QP could carry out completes in error when those before
// it are complete, as on an RNIC, and is no damage of the ring: the QP ends without an event.
func TestInvalidRequest(t *testing.T) {
	const opErr, lenErr = "local QP operation error", "local length error"
	for _, c := range []struct {
		name  string
		wr    ib.SendWR
		at    int // in the slot
		bytes []byte
		want  string
	}{
		{"an opcode that does not exist", ib.SendWR{}, slotOpcode, []byte{77}, opErr},
		{"an opcode of another service", ib.SendWR{}, slotOpcode, []byte{10}, opErr},
		{"unknown flags", ib.SendWR{}, slotFlags, []byte{0x80}, opErr},
		{"more SGEs than the slot holds", ib.SendWR{}, slotNumSGE, []byte{5, 0}, opErr},
		{"65,535 SGEs", ib.SendWR{}, slotNumSGE, []byte{0xFF, 0xFF}, opErr},
		{"more inline data than the slot holds", ib.SendWR{Flags: ib.SendInline}, slotInline, []byte{65}, opErr},
		{"inline data of a READ", ib.SendWR{Flags: ib.SendInline}, slotOpcode, []byte{byte(ib.WRRead)}, opErr},
		{"an SRQ number of 32 bits", ib.SendWR{}, slotSRQ, binary.NativeEndian.AppendUint32(nil, 1<<24), opErr},
		{"an SGL for LOCAL INVALIDATE", ib.SendWR{SGL: make([]ib.SGE, 1)}, slotOpcode, []byte{byte(ib.WRLocalInv)},
			opErr},
		{"an atomic without memory", ib.SendWR{}, slotOpcode, []byte{byte(ib.WRFetchAdd)}, lenErr},
		{"4 GiB", ib.SendWR{SGL: make([]ib.SGE, 2)}, 64 + 8, []byte{0xFF, 0xFF, 0xFF, 0xFF}, lenErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostIn(t, ib.StateRTS)
			c.wr.Opcode, c.wr.ID = ib.WRSend, 2
			h.must(h.sq.Push(&ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled}))
			h.must(h.sq.Push(&c.wr))
			h.must(h.sq.Push(&ib.SendWR{ID: 3, Opcode: ib.WRSend}))
			slotSize := int(binary.NativeEndian.Uint32(h.sqBytes[12:]))
			copy(h.sqBytes[256+slotSize+c.at:], c.bytes)
			h.sq.Publish()
			h.q.Doorbell(0)
			if got, want := h.outcome(nil), fmt.Sprintf("SEND Only %d", ourPSN); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
			h.handle(0, ack(ourPSN, 1))
			want := fmt.Sprintf("send 1 success, send 2 %s, send 3 Work Request Flushed Error, ERR", c.want)
			if got := h.outcome(nil); !strings.EqualFold(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestUnalignedAtomic checks that the peer judges the address of an atomic.
func TestUnalignedAtomic(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRCompareSwap, ib.WRFetchAdd, ib.WRAtomicWrite} {
		a, b := connected(t)
		a.must(a.sq.Push(&ib.SendWR{ID: 1, Opcode: op, SGL: []ib.SGE{a.sge(0, 8)}, RemoteAddr: memAddr,
			RKey: b.region.Key()}))
		binary.NativeEndian.PutUint64(a.sqBytes[256+slotAddr:], memAddr+4)
		a.sq.Publish()
		a.q.Doorbell(0)
		deliver(t, a, b)
		deliver(t, b, a)
		if got, want := a.outcome(nil), "send 1 remote invalid request error"; a.q.State() != ib.StateErr ||
			!strings.EqualFold(got, want) {
			t.Errorf("%v: %q, want %q", op, got, want)
		}
	}
}

// deliver passes all packets of a QP on to its peer.
func deliver(t *testing.T, from, to *host) {
	t.Helper()
	for _, tx := range from.emit(0, 4) {
		tx.Payload = data(t, &tx)
		to.handle(0, tx.Packet)
	}
}

// TestInvalidReceive checks that a message which takes an invalid receive fails it, and gets a NAK.
func TestInvalidReceive(t *testing.T) {
	for _, c := range []struct {
		shared bool
		want   string
	}{
		{false, "NAK 500, recv 5 local QP operation error, recv 6 Work Request Flushed Error, " +
			"invalid request local work queue error"},
		{true, "NAK 500, recv 5 local QP operation error, invalid request local work queue error, last WQE reached"},
	} {
		h := newServiceHost(t, ib.RC, ourNum, c.shared)
		h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
		h.must(h.rq.Push(&ib.RecvWR{ID: 5}))
		h.rqBytes[256+8] = 5 // SGEs, of which a slot holds 4
		h.must(h.rq.Push(&ib.RecvWR{ID: 6}))
		h.rq.Publish()
		h.handle(0, request(wire.RCSendOnly, peerPSN, nil))
		if got := h.outcome(nil); !strings.EqualFold(got, c.want) {
			t.Errorf("shared %v: %q, want %q", c.shared, got, c.want)
		}
	}
}
