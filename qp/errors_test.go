package qp

import (
	"encoding/binary"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestReadRevokedMidway checks that the NAK has the PSN of the first response that
// cannot be sent, whatever was sent before.
func TestReadRevokedMidway(t *testing.T) {
	h := hostIn(t, ib.RTS)
	p := request(wire.RCReadRequest, peerPSN, nil)
	p.RETH = wire.RETH{VA: memAddr, RKey: h.region.Key(), Len: 3 * 1024}
	h.handle(0, p)
	var out [1]TxPacket
	if n := h.q.NextPackets(0, out[:]); n != 1 || out[0].Opcode != wire.RCReadRespFirst {
		t.Fatalf("%d packets, %v", n, out[0].Opcode)
	}
	h.must(h.table.Deregister(h.region))
	packets := h.emit(0, 1)
	if len(packets) != 1 || packets[0].AETH.Syndrome != wire.NAKRemoteAccess || packets[0].PSN != peerPSN+1 {
		t.Fatalf("%d packets: %+v", len(packets), packets)
	}
	if h.q.State() != ib.Err {
		t.Errorf("the QP is in %v", h.q.State())
	}
}

// corrupt writes an invalid producer index to a ring.
func corrupt(ring []byte) { binary.NativeEndian.PutUint32(ring[64:], 1<<20) }

// TestCorruptSendRing checks that invalid data in the send ring takes the QP to ERR, and
// that it can be reset then.
func TestCorruptSendRing(t *testing.T) {
	h := hostIn(t, ib.RTS)
	corrupt(h.sqBytes)
	h.q.Doorbell(0)
	if got, want := h.outcome(nil), "local work queue catastrophic error"; got != want || h.q.State() != ib.Err {
		t.Errorf("%q in %v, want %q in ERR", got, h.q.State(), want)
	}
	h.must(h.modify(ib.Reset, ib.QPAttr{}, 0))
}

// TestCorruptRecvRing checks that the peer gets a NAK for a remote operational error.
func TestCorruptRecvRing(t *testing.T) {
	h := hostIn(t, ib.RTS)
	corrupt(h.rqBytes)
	h.handle(0, request(wire.RCSendOnly, peerPSN, make([]byte, 8)))
	if h.q.State() != ib.Err {
		t.Errorf("the QP is in %v", h.q.State())
	}
	packets := h.emit(0, 4)
	if len(packets) != 1 || packets[0].AETH.Syndrome != wire.NAKRemoteOp {
		t.Errorf("%d packets: %+v", len(packets), packets)
	}
	if got, want := h.outcome(nil), "local work queue catastrophic error"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
