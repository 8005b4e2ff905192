package qp

import (
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
)

// sharedHost returns a QP of a service in RTS, whose receives come from an SRQ.
func sharedHost(t *testing.T, typ ib.QPType) *host {
	h := newServiceHost(t, typ, ourNum, true)
	h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	return h
}

// srqEvents takes the events of the SRQs that are listed in the shard's Due.
func (h *host) srqEvents() (list []ib.EventType) {
	for s := h.due.SRQ(); s != nil; s = h.due.SRQ() {
		for e, ok := s.TakeEvent(); ok; e, ok = s.TakeEvent() {
			list = append(list, e)
		}
	}
	return list
}

// TestDue checks that a CQ or SRQ with events is listed once, until it is taken.
func TestDue(t *testing.T) {
	h := sharedHost(t, ib.RC)
	if h.due.SRQ() != nil || h.due.CQ() != nil {
		t.Fatal("something is due before anything has happened")
	}
	h.srq.SetLimit(3, &h.due)
	h.srq.SetLimit(2, &h.due)
	if s := h.due.SRQ(); s != h.srq || h.due.SRQ() != nil {
		t.Error("the SRQ is not listed just once")
	}
	if e, ok := h.srq.TakeEvent(); e != ib.EventSRQLimit || !ok {
		t.Errorf("got %v, %v, want SRQ_LIMIT_REACHED", e, ok)
	}
	if e, ok := h.srq.TakeEvent(); ok {
		t.Errorf("got another event, %v, want none", e)
	}
	h.srq.SetLimit(1, &h.due)
	if got := h.srqEvents(); len(got) != 1 {
		t.Errorf("after arming it again: got events %v, want one", got)
	}

	h.recvCQ.Arm(false)
	h.postRecv(&ib.RecvWR{ID: 1, SGL: []ib.SGE{h.sge(0, 8)}})
	h.handle(0, h.sendOnly(peerPSN))
	if cq := h.due.CQ(); cq != h.q.RecvCQ() || !cq.TakeNotify() || h.due.CQ() != nil {
		t.Error("the completion queue that was armed is not listed just once")
	}
}

// TestSRQLimit checks Limit and the limit event.
func TestSRQLimit(t *testing.T) {
	h := sharedHost(t, ib.RC)
	for id := range uint64(3) {
		h.postRecv(&ib.RecvWR{ID: id, SGL: []ib.SGE{h.sge(0, 8)}})
	}
	for psn, c := range []struct{ arm, limit, events int }{
		{arm: 2, limit: 2}, // 3 are left, then 2
		{arm: -1, limit: 0, events: 1},
		{arm: 1, limit: 0, events: 1}, // none is left
	} {
		if c.arm >= 0 {
			h.srq.SetLimit(c.arm, &h.due)
		}
		h.handle(0, h.sendOnly(peerPSN.Add(psn)))
		if got := h.srqEvents(); h.srq.Limit() != c.limit || len(got) != c.events {
			t.Errorf("message %d: limit %d, events %v; want %d, %d", psn, h.srq.Limit(), got, c.limit, c.events)
		}
	}
}

// TestSRQResize checks that receives are moved to a larger ring.
func TestSRQResize(t *testing.T) {
	h := sharedHost(t, ib.RC)
	h.postRecv(&ib.RecvWR{ID: 1, SGL: []ib.SGE{h.sge(0, 8)}})
	b := ring.Alloc(ring.RecvSize(2*hostEntries, 4))
	larger, err := ring.NewRecv(b, 2*hostEntries, 4)
	h.must(err)
	if n, done, fits := h.srq.Resize(larger)(); n != 1 || !done || !fits {
		t.Fatalf("got %d receives moved, %v, %v; want 1, all, and room for it", n, done, fits)
	}
	h.rq, err = ring.OpenRecv(b)
	h.must(err)
	h.postRecv(&ib.RecvWR{ID: 2, SGL: []ib.SGE{h.sge(0, 8)}})
	got := h.outcome(func() bool {
		h.handle(0, h.sendOnly(peerPSN))
		h.handle(0, h.sendOnly(peerPSN+1))
		return true
	})
	if want := "ACK 501, recv 1 success, recv 2 success"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCorruptSRQ checks that invalid data in a shared ring raises one event, and is fatal
// to each QP that reads it. Only a reliable QP sends a NAK.
func TestCorruptSRQ(t *testing.T) {
	for _, c := range []struct {
		typ  ib.QPType
		want string
	}{
		{ib.RC, "NAK 500, local work queue catastrophic error, last WQE reached, ERR"},
		{ib.UC, "local work queue catastrophic error, last WQE reached, ERR"},
		{ib.UD, "local work queue catastrophic error, last WQE reached, ERR"},
	} {
		h := sharedHost(t, c.typ)
		corrupt(h.rqBytes)
		if got := h.outcome(func() bool { h.handle(0, h.sendOnly(peerPSN)); return true }); got != c.want {
			t.Errorf("%v: %q, want %q", c.typ, got, c.want)
		}
		if got := h.srqEvents(); len(got) != 1 || got[0] != ib.EventSRQErr {
			t.Errorf("%v: got events %v, want SRQ_ERR", c.typ, got)
		}
		h.must(h.modify(ib.StateReset, ib.QPAttr{}, 0))
		h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
		h.handle(0, h.sendOnly(peerPSN))
		if got := h.srqEvents(); h.q.State() != ib.StateErr || len(got) != 0 {
			t.Errorf("%v: the second QP: got events %v in %v, want none in ERR", c.typ, got, h.q.State())
		}
	}
}

// TestSRQDomain checks that the memory of a shared receive must be in the SRQ's protection
// domain, and that of WRITEs in the QP's.
func TestSRQDomain(t *testing.T) {
	for _, typ := range []ib.QPType{ib.RC, ib.UC, ib.UD} {
		h := sharedHost(t, typ)
		other, err := h.table.NewPD()
		h.must(err)
		h.srq.pd = other
		region, err := h.table.Register(other, mr.Bytes(make([]byte, 64)), 0x1000, ib.LocalWrite|ib.RemoteWrite)
		h.must(err)
		h.postRecv(&ib.RecvWR{ID: 1, SGL: []ib.SGE{{Addr: 0x1000, Length: 64, LKey: region.Key()}}})
		h.postRecv(&ib.RecvWR{ID: 2, SGL: []ib.SGE{h.sge(0, 64)}}) // in the QP's domain
		h.handle(0, h.sendOnly(peerPSN))
		h.handle(0, h.sendOnly(peerPSN+1))
		got := h.outcome(nil)
		if want := "recv 1 success, recv 2 local protection error"; !strings.Contains(got, want) ||
			h.q.State() != ib.StateErr {
			t.Errorf("%v: %q, want %q; the QP is in %v", typ, got, want, h.q.State())
		}
	}
}
