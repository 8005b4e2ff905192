package qp

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// flushed polls all completions, and checks that their IDs count on from those of the calls before, and that
// none has succeeded.
type flushed struct {
	*host
	sends, recvs uint64
}

func (f *flushed) poll() (n int) {
	f.t.Helper()
	var wcs [4 * hostEntries]ib.WC
	sends := f.sendCQ.Poll(wcs[:])
	recvs := f.recvCQ.Poll(wcs[sends:])
	for i, wc := range wcs[:sends+recvs] {
		next := &f.sends
		if i >= sends {
			next = &f.recvs
		}
		if wc.ID != *next || wc.Status == ib.WCSuccess {
			f.t.Fatalf("completion %d is of request %d with status %v, want request %d", i, wc.ID, wc.Status, *next)
		}
		*next++
	}
	return sends + recvs
}

// TestFlushInParts: full queues are flushed in parts, in order and completely; what is posted meanwhile
// comes last. EventLastWQE is raised at the end, not before.
func TestFlushInParts(t *testing.T) {
	for _, shared := range []bool{false, true} {
		h := newServiceHost(t, ib.RC, ourNum, shared)
		h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
		f := &flushed{host: h}
		post := func(id int) {
			h.must(h.sq.Push(&ib.SendWR{ID: uint64(id), Opcode: ib.WRSend}))
			h.sq.Publish()
		}
		for id := range hostEntries {
			post(id)
			if !shared {
				h.must(h.rq.Push(&ib.RecvWR{ID: uint64(id)}))
			}
		}
		h.rq.Publish()
		h.q.Doorbell(0)
		h.must(h.modify(ib.StateErr, ib.QPAttr{}, 0))
		sends, recvs := hostEntries+1, hostEntries
		if shared {
			recvs = 0
		}
		for parts := 1; ; parts++ {
			if n := f.poll(); n > FlushMost {
				t.Fatalf("part %d: %d completions, want %d at most", parts, n, FlushMost)
			}
			if parts == 1 {
				post(hostEntries) // there is room again
			}
			e := h.q.Effects()
			done := f.sends == uint64(sends) && f.recvs == uint64(recvs)
			if last := e.Events&(1<<ib.EventLastWQE) != 0; last != (shared && done) {
				t.Errorf("after %d sends and %d receives of %d and %d: EventLastWQE %v, want %v", f.sends, f.recvs,
					sends, recvs, last, shared && done)
			}
			if e.Doorbell == done {
				t.Fatalf("after %d sends and %d receives of %d and %d: Effects.Doorbell is %v, want %v", f.sends,
					f.recvs, sends, recvs, e.Doorbell, !done)
			}
			if done {
				break
			}
			h.q.Doorbell(0)
		}
	}
}

// TestFlushOutlastsSQE: a QP that returns to RTS in the middle of the flush flushes the rest, and sends only what was
// posted after its return.
func TestFlushOutlastsSQE(t *testing.T) {
	h := serviceIn(t, ib.UC, ib.StateRTS)
	f := &flushed{host: h}
	for id := range hostEntries { // the first one fails
		h.must(h.sq.Push(&ib.SendWR{ID: uint64(id), Opcode: ib.WRSend, SGL: []ib.SGE{{Length: 8}}}))
	}
	h.sq.Publish()
	h.q.Doorbell(0)
	h.q.NextPackets(0, make([]TxPacket, 4))
	if n := f.poll(); h.q.State() != ib.StateSQE || n != FlushMost || !h.q.Effects().Doorbell {
		t.Fatalf("%d requests flushed in %v, want %d in SQE", n, h.q.State(), FlushMost)
	}
	h.must(h.modify(ib.StateRTS, ib.QPAttr{CurState: ib.StateSQE}, 0))
	h.must(h.sq.Push(&ib.SendWR{ID: hostEntries, Opcode: ib.WRSend, Flags: ib.SendSignaled}))
	h.sq.Publish()
	if n := len(h.emit(0, 4)); n != 0 {
		t.Fatalf("got %d packets of requests that are to be flushed, want none", n)
	}
	h.q.Doorbell(0)
	if n := f.poll(); n != hostEntries-FlushMost {
		t.Errorf("%d more requests flushed, want %d", n, hostEntries-FlushMost)
	}
	if n := len(h.emit(0, 4)); n != 1 {
		t.Errorf("%d packets, want that of the last request", n)
	}
}

// TestRingAhead: the requests of a full ring come out of it as they are sent, and all of them are sent.
func TestRingAhead(t *testing.T) {
	h := serviceIn(t, ib.UC, ib.StateRTS)
	for range hostEntries {
		h.must(h.sq.Push(&ib.SendWR{Opcode: ib.WRSend}))
	}
	h.sq.Publish()
	h.q.Doorbell(0)
	sent, out := 0, make([]TxPacket, 16)
	for more := true; more; {
		sent += h.q.NextPackets(0, out)
		h.q.Sent(0)
		e := h.q.Effects()
		if e.Taken > fetchMost {
			t.Errorf("%d requests were taken, want %d at most", e.Taken, fetchMost)
		}
		more = e.Send
	}
	if sent != hostEntries {
		t.Errorf("%d packets, want %d", sent, hostEntries)
	}
}
