package qp

import (
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
)

// TestDueOfTwo checks that a CQ of two shards is in the list of the shard that first
// added an event, and that this shard delivers the events of both.
func TestDueOfTwo(t *testing.T) {
	b := ring.Alloc(ring.CQSize(8))
	device, err := ring.NewCQ(b, 8)
	if err != nil {
		t.Fatal(err)
	}
	app, err := ring.OpenCQ(b)
	if err != nil {
		t.Fatal(err)
	}
	var lock sync.Mutex
	var first, second Due
	c := NewCQ(device, &lock)
	push := func(due *Due) {
		app.Arm(false)
		if !c.push(&ib.WC{}, false, due) {
			t.Fatal("the queue is full")
		}
	}
	push(&first)
	push(&second)
	if second.CQ() != nil || first.CQ() != c || first.CQ() != nil {
		t.Error("the CQ is not listed just once, by whom it was first")
	}
	push(&second)
	if !c.TakeNotify() || c.TakeNotify() {
		t.Error("the events are not told just once")
	}
	if second.CQ() != c {
		t.Error("a CQ that one shard has taken off its list cannot be listed by another")
	}
}

// TestSharedQueues lets several shards complete to one CQ and take receives from
// one SRQ: nothing is lost or duplicated, and each arming raises one event.
func TestSharedQueues(t *testing.T) {
	const shards, each = 4, 2000
	cqBytes, rqBytes := ring.Alloc(ring.CQSize(shards*each)), ring.Alloc(ring.RecvSize(shards*each, 1))
	cqDevice, err1 := ring.NewCQ(cqBytes, shards*each)
	rqDevice, err2 := ring.NewRecv(rqBytes, shards*each, 1)
	cqApp, err3 := ring.OpenCQ(cqBytes)
	rqApp, err4 := ring.OpenRecv(rqBytes)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for id := range uint64(shards * each) {
		if err := rqApp.Push(&ib.RecvWR{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	rqApp.Publish()
	var cqLock, srqLock sync.Mutex
	c, s := NewCQ(cqDevice, &cqLock), NewSRQ(rqDevice, nil, nil, nil, &srqLock)
	cqApp.Arm(false)
	s.SetLimit(shards*each/2, nil)

	var told, limits [shards]int
	var all sync.WaitGroup
	for i := range shards {
		all.Go(func() {
			var due Due
			var wr ib.RecvWR
			rqDevice.Prepare(&wr)
			for range each {
				if ok, err := s.pop(&wr, &due); !ok || err != nil {
					t.Errorf("got %v, %v, want a receive", ok, err)
				}
				c.push(&ib.WC{ID: wr.ID}, false, &due)
				for c := due.CQ(); c != nil; c = due.CQ() {
					if c.TakeNotify() {
						told[i]++
					}
				}
				for s := due.SRQ(); s != nil; s = due.SRQ() {
					if _, ok := s.TakeEvent(); ok {
						limits[i]++
					}
				}
			}
		})
	}
	all.Wait()
	seen := make([]bool, shards*each)
	wcs := make([]ib.WC, shards*each)
	for _, wc := range wcs[:cqApp.Poll(wcs)] {
		if seen[wc.ID] {
			t.Fatalf("receive %d has completed twice", wc.ID)
		}
		seen[wc.ID] = true
	}
	for id, ok := range seen {
		if !ok {
			t.Fatalf("receive %d is lost", id)
		}
	}
	sum := func(n [shards]int) int { return n[0] + n[1] + n[2] + n[3] }
	if sum(told) != 1 || sum(limits) != 1 {
		t.Errorf("one arming each: got %v and %v events of the shards, want one in all of each", told, limits)
	}
}
