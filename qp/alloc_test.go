package qp

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// exchange passes packets between two hosts as an engine does, but not encoded as
// bytes, with buffers that are allocated once.
type exchange struct {
	t    testing.TB
	a, b *host
	tx   [32]TxPacket
	rx   [32]wire.Packet
	bufs [32][4096]byte
	grh  [ib.GRHLen]byte
	wcs  [32]ib.WC
}

// run moves packets until none is left, and takes completions. It returns how
// many packets there were.
func (x *exchange) run(now ib.Instant) (packets int) {
	for {
		n, more := x.move(now, x.a, x.b)
		m, again := x.move(now, x.b, x.a)
		packets += n + m
		for _, h := range []*host{x.a, x.b} {
			for _, cq := range []interface{ Poll([]ib.WC) int }{h.sendCQ, h.recvCQ} {
				for i := range x.wcs[:cq.Poll(x.wcs[:])] {
					if x.wcs[i].Status != ib.WCSuccess {
						x.t.Fatal(x.wcs[i].Err())
					}
				}
			}
		}
		if n+m == 0 && !more && !again {
			return packets
		}
	}
}

// move takes packets from one host to the other.
func (x *exchange) move(now ib.Instant, from, to *host) (n int, more bool) {
	n = from.q.NextPackets(now, x.tx[:])
	for i := range x.tx[:n] {
		tx := &x.tx[i]
		x.rx[i] = tx.Packet
		x.rx[i].Payload = x.bufs[i][:tx.Len]
		if tx.Inline != nil {
			copy(x.rx[i].Payload, tx.Inline)
		} else if err := mr.Gather(x.rx[i].Payload, tx.SGL, tx.Off); err != nil {
			x.t.Fatal(err)
		}
	}
	from.q.Sent(now)
	more = from.q.Effects().Send
	if !Datagram(to.q.Type()) {
		to.q.HandlePackets(now, x.rx[:n])
		return n, more
	}
	for i := range x.rx[:n] {
		to.q.HandleDatagram(now, &x.rx[i], &x.grh)
	}
	return n, more
}

// streams are the messages that TestNoAllocation repeats.
var streams = []struct {
	typ     ib.QPType
	name    string
	op      ib.WROpcode
	size    int
	packets int // minimum for a message with its responses
	recv    bool
	shared  bool
}{
	{ib.RC, "SEND 8", ib.WRSend, 8, 2, true, false},
	{ib.RC, "SEND 64 KiB", ib.WRSend, 65536, 66, true, false},
	{ib.RC, "SEND with immediate", ib.WRSendImm, 2048, 3, true, false},
	{ib.RC, "SEND 64 KiB into an SRQ", ib.WRSend, 65536, 66, true, true},
	{ib.RC, "WRITE 8", ib.WRWrite, 8, 2, false, false},
	{ib.RC, "WRITE 64 KiB", ib.WRWrite, 65536, 66, false, false},
	{ib.RC, "WRITE 300 KiB, more than may be in flight", ib.WRWrite, 300 * 1024, 310, false, false},
	{ib.RC, "WRITE with immediate", ib.WRWriteImm, 2048, 3, true, false},
	{ib.RC, "READ 8", ib.WRRead, 8, 2, false, false},
	{ib.RC, "READ 64 KiB", ib.WRRead, 65536, 65, false, false},
	{ib.RC, "READ 300 KiB, in pieces", ib.WRRead, 300 * 1024, 302, false, false},
	{ib.RC, "COMPARE & SWAP", ib.WRCompareSwap, 8, 2, false, false},
	{ib.RC, "FETCH & ADD", ib.WRFetchAdd, 8, 2, false, false},
	{ib.RC, "ATOMIC WRITE", ib.WRAtomicWrite, 8, 2, false, false},
	{ib.RC, "FLUSH", ib.WRFlush, 0, 2, false, false},

	{ib.UC, "SEND 8", ib.WRSend, 8, 1, true, false},
	{ib.UC, "SEND 64 KiB", ib.WRSend, 65536, 64, true, false},
	{ib.UC, "SEND 64 KiB into an SRQ", ib.WRSend, 65536, 64, true, true},
	{ib.UC, "WRITE 300 KiB", ib.WRWrite, 300 * 1024, 300, false, false},
	{ib.UC, "WRITE with immediate", ib.WRWriteImm, 2048, 2, true, false},

	{ib.UD, "SEND 8", ib.WRSend, 8, 1, true, false},
	{ib.UD, "SEND 4 KiB with immediate", ib.WRSendImm, 4096, 1, true, false},
	{ib.UD, "SEND 4 KiB into an SRQ", ib.WRSend, 4096, 1, true, true},

	{ib.XRCINI, "SEND 64 KiB", ib.WRSend, 65536, 66, true, false},
	{ib.XRCINI, "WRITE 64 KiB", ib.WRWrite, 65536, 66, false, false},
	{ib.XRCINI, "READ 64 KiB", ib.WRRead, 65536, 65, false, false},
	{ib.XRCINI, "FETCH & ADD", ib.WRFetchAdd, 8, 2, false, false},
}

// TestNoAllocation checks that a steady stream allocates nothing, for all services,
// operations and sizes.
func TestNoAllocation(t *testing.T) {
	for _, c := range streams {
		t.Run(fmt.Sprintf("%v/%s", c.typ, c.name), func(t *testing.T) {
			a, b := connectedBy(t, c.typ, c.shared)
			a.q.cfg.Probe = true
			x := &exchange{t: t, a: a, b: b}
			for i := range a.mem {
				a.mem[i] = byte(i * 7)
			}
			const at = memSize / 2 // where the data arrives, with room for a GRH before it
			wr := &ib.SendWR{
				ID: 1, Opcode: c.op, Flags: ib.SendSignaled, SGL: []ib.SGE{a.sge(0, c.size)},
				RemoteAddr: memAddr + at, RKey: b.region.Key(), RemoteSRQ: srqNum,
				AH: ahNum, RemoteQPN: peerNum, RemoteQKey: ourQKey,
			}
			if c.op == ib.WRFlush {
				wr.SGL, wr.Flush = nil, ib.Flush{Length: 4096, Level: ib.FlushGlobally}
			}
			recv := &ib.RecvWR{ID: 2, SGL: []ib.SGE{b.sge(at, c.size)}}
			if Datagram(c.typ) {
				recv.SGL = []ib.SGE{b.sge(at-ib.GRHLen, ib.GRHLen+c.size)}
			}
			now := ib.Instant(0)
			packets := 0
			once := func() {
				if c.recv {
					b.postRecv(recv)
				}
				a.post(wr)
				packets = x.run(now)
				now += 1000
			}
			once()
			if c.op != ib.WRRead && c.op != ib.WRCompareSwap && c.op != ib.WRFetchAdd &&
				!bytes.Equal(a.mem[:c.size], b.mem[at:][:c.size]) {
				t.Error("the data did not arrive")
			}
			if n := testing.AllocsPerRun(50, once); n != 0 {
				t.Errorf("got %v allocations for a message, want 0", n)
			}
			if packets < c.packets {
				t.Errorf("%d packets for a message, want at least %d", packets, c.packets)
			}
		})
	}
}

// TestNoAllocationInProbe checks that probes allocate nothing.
func TestNoAllocationInProbe(t *testing.T) {
	a, b := connected(t)
	a.q.cfg.Probe = true
	x := &exchange{t: t, a: a, b: b}
	wr := &ib.SendWR{
		ID: 1, Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: []ib.SGE{a.sge(0, 8192)},
		RemoteAddr: memAddr, RKey: b.region.Key(),
	}
	now := ib.Instant(0)
	if n := testing.AllocsPerRun(50, func() {
		a.post(wr)
		a.q.NextPackets(now, x.tx[:])
		now = a.q.Deadline()
		a.q.HandleTimeout(now)
		if packets := x.run(now); packets < 2+1+7+1 {
			t.Fatalf("%d packets, want at least the probe, a NAK, the rest and an ACK: 11", packets)
		}
	}); n != 0 {
		t.Errorf("got %v allocations in a probe, want 0", n)
	}
	if a.stats.LocalAckTimeout != 0 {
		t.Error("the ACK timeout was first")
	}
}

// TestNoAllocationInRecovery checks that losses, NAKs and timeouts allocate nothing.
func TestNoAllocationInRecovery(t *testing.T) {
	a, b := connected(t)
	x := &exchange{t: t, a: a, b: b}
	wr := &ib.SendWR{
		ID: 1, Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: []ib.SGE{a.sge(0, 8192)},
		RemoteAddr: memAddr, RKey: b.region.Key(),
	}
	now := ib.Instant(0)
	if n := testing.AllocsPerRun(50, func() {
		a.post(wr)
		lost := a.q.NextPackets(now, x.tx[:3])
		packets := x.run(now) // a gap, a NAK, and the retransmission
		if lost != 3 || packets < 1+1+8+1 {
			t.Fatalf("got %d packets lost and %d arrived, want 3 and at least 11", lost, packets)
		}
		a.post(wr)
		a.q.NextPackets(now, x.tx[:])
		now = a.q.Deadline()
		a.q.HandleTimeout(now)
		if packets := x.run(now); packets < 9 {
			t.Fatalf("%d packets after the timeout, want at least 8 and an ACK", packets)
		}
	}); n != 0 {
		t.Errorf("got %v allocations in a recovery, want 0", n)
	}
	if a.stats.RcvdSeqErr != 51 || a.stats.LocalAckTimeout != 51 {
		t.Errorf("got %d sequence NAKs and %d timeouts, want 51 each", a.stats.RcvdSeqErr, a.stats.LocalAckTimeout)
	}
}
