package qp

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// exchange carries packets between two hosts as an engine does, without bytes on
// a wire: buffers are made once.
type exchange struct {
	t    testing.TB
	a, b *host
	tx   [32]TxPacket
	rx   [32]wire.Packet
	bufs [32][4096]byte
	wcs  [32]ib.WC
}

// run moves packets until none is left, and takes completions. It returns how
// many packets there were.
func (x *exchange) run(now ib.Instant) (packets int) {
	for {
		n := x.move(now, x.a, x.b) + x.move(now, x.b, x.a)
		packets += n
		if n == 0 {
			return packets
		}
		for _, h := range []*host{x.a, x.b} {
			for _, cq := range []interface{ Poll([]ib.WC) int }{h.sendCQ, h.recvCQ} {
				for i := range x.wcs[:cq.Poll(x.wcs[:])] {
					if x.wcs[i].Status != ib.WCSuccess {
						x.t.Fatal(x.wcs[i].Err())
					}
				}
			}
		}
	}
}

// move takes packets from one host to the other.
func (x *exchange) move(now ib.Instant, from, to *host) int {
	n := from.q.NextPackets(now, x.tx[:])
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
	to.q.HandlePackets(now, x.rx[:n])
	return n
}

// TestNoAllocation: a steady stream allocates nothing, whatever the operation and
// the size.
func TestNoAllocation(t *testing.T) {
	for _, c := range []struct {
		name    string
		op      ib.WROpcode
		size    int
		packets int // of a message, with its responses, at least
		recv    bool
	}{
		{"SEND 8", ib.WRSend, 8, 2, true},
		{"SEND 64 KiB", ib.WRSend, 65536, 66, true},
		{"SEND with immediate", ib.WRSendImm, 2048, 3, true},
		{"WRITE 8", ib.WRWrite, 8, 2, false},
		{"WRITE 64 KiB", ib.WRWrite, 65536, 66, false},
		{"WRITE 300 KiB, more than may be in flight", ib.WRWrite, 300 * 1024, 310, false},
		{"WRITE with immediate", ib.WRWriteImm, 2048, 3, true},
		{"READ 8", ib.WRRead, 8, 2, false},
		{"READ 64 KiB", ib.WRRead, 65536, 65, false},
		{"READ 300 KiB, in pieces", ib.WRRead, 300 * 1024, 303, false},
		{"COMPARE & SWAP", ib.WRCompareSwap, 8, 2, false},
		{"FETCH & ADD", ib.WRFetchAdd, 8, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connected(t)
			x := &exchange{t: t, a: a, b: b}
			for i := range a.mem {
				a.mem[i] = byte(i * 7)
			}
			wr := &ib.SendWR{
				ID: 1, Opcode: c.op, Flags: ib.SendSignaled, SGL: []ib.SGE{a.sge(0, c.size)},
				RemoteAddr: memAddr + memSize/2, RKey: b.region.Key(),
			}
			recv := &ib.RecvWR{ID: 2, SGL: []ib.SGE{b.sge(memSize/2, c.size)}}
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
				!bytes.Equal(a.mem[:c.size], b.mem[memSize/2:][:c.size]) {
				t.Error("the data did not arrive")
			}
			if n := testing.AllocsPerRun(50, once); n != 0 {
				t.Errorf("%v allocations for a message", n)
			}
			if packets < c.packets {
				t.Errorf("%d packets for a message, expected %d", packets, c.packets)
			}
		})
	}
}

// TestNoAllocationInRecovery: nor do losses, NAKs and timeouts allocate.
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
		packets := x.run(now) // a gap, a NAK, and all again
		if lost != 3 || packets < 1+1+8+1 {
			t.Fatalf("%d packets lost, %d arrived", lost, packets)
		}
		a.post(wr)
		a.q.NextPackets(now, x.tx[:])
		now = a.q.Deadline()
		a.q.HandleTimeout(now)
		if packets := x.run(now); packets < 9 {
			t.Fatalf("%d packets after the timeout, expected 8 and an ACK", packets)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if a.stats.RcvdSeqErr != 51 || a.stats.LocalAckTimeout != 51 {
		t.Errorf("%d sequence NAKs, %d timeouts", a.stats.RcvdSeqErr, a.stats.LocalAckTimeout)
	}
}
