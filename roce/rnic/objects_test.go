//go:build rnic && cgo

package rnic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// TestSharedReceiveQueue checks that QPs take receives from an SRQ, that the SRQ reports
// when it falls below its limit, and that it can grow.
func TestSharedReceiveQueue(t *testing.T) {
	r := openRig(t)
	s := try(r.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 6, MaxSGE: 2}}))(r)
	if attr := try(s.Query())(r); attr.MaxWR < 6 || attr.MaxSGE < 2 || attr.Limit != 0 || s.Num() != 0 {
		t.Errorf("SRQ %+v, number %d; want 6 of 2 pieces, or more, limit 0, number 0", attr, s.Num())
	}
	a, b := r.newPair(ib.RC, func(init *ib.QPInit) { init.SRQ = s })
	if _, err := b.PostRecv([]ib.RecvWR{{}}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("PostRecv on a QP with an SRQ: %v, want %v", err, ib.ErrInvalid)
	}
	mr, _ := r.register(64)
	for range 4 {
		r.recv(s, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(mr, 0, 32), sge(mr, 32, 32)}})
	}
	r.must(s.Modify(ib.SRQAttr{Limit: 4}, ib.SRQLimit))
	send := ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, Inline: []byte("x")}
	r.send(a, send)
	if wc := r.wantBoth(1, 2); wc.QPN != b.Num() {
		t.Errorf("completion %+v of another QP, want QP %v", wc, b.Num())
	}
	if ev := try(r.NextEvent(r.ctx))(r); ev != (ib.Event{Type: ib.EventSRQLimit, SRQ: s}) {
		t.Errorf("event %+v, want the SRQ's limit", ev)
	}
	r.must(s.Modify(ib.SRQAttr{MaxWR: 100}, ib.SRQMaxWR))
	for range 50 {
		r.recv(s, ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(mr, 0, 32)}})
	}
	r.send(a, send)
	r.wantBoth(1, 2)
	for _, attr := range []ib.SRQAttr{{MaxWR: 0}, {MaxWR: 1 << 30}, {MaxWR: 4, Limit: 5}} {
		if _, err := r.pd.CreateSRQ(ib.SRQInit{SRQAttr: attr}); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("SRQ of %+v: %v, want %v", attr, err, ib.ErrInvalid)
		}
	}
}

// TestLastReceive checks that a QP on an SRQ reports in ERR that it takes no more receives.
func TestLastReceive(t *testing.T) {
	r := openRig(t)
	var name unix.Utsname
	r.must(unix.Uname(&name))
	if release := unix.ByteSliceToString(name.Release[:]); r.Attr().VendorID == rxeVendor &&
		strings.HasPrefix(release, "6.1.") {
		t.Skip("skipped: needs a kernel whose rdma_rxe raises EventLastWQE; 6.1 does not (tests/rxe has 6.12, too)")
	}
	s := try(r.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1}}))(r)
	_, b := r.newPair(ib.RC, func(init *ib.QPInit) { init.SRQ = s })
	r.must(b.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	if ev := try(r.NextEvent(r.ctx))(r); ev != (ib.Event{Type: ib.EventLastWQE, QP: b}) {
		t.Errorf("event %+v, want the last receive of QP b", ev)
	}
}

// TestOverrun checks that a CQ without room for a completion reports an error.
func TestOverrun(t *testing.T) {
	r := openRig(t)
	cq := r.newCQ(1)
	q := r.newQP(ib.RC, func(init *ib.QPInit) { init.SendCQ = cq })
	r.ready(q, q.Num())
	r.must(q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	for range 8 {
		r.send(q, ib.SendWR{Opcode: ib.WRSend})
	}
	if ev := try(r.NextEvent(r.ctx))(r); ev != (ib.Event{Type: ib.EventCQErr, CQ: cq}) {
		t.Errorf("event %+v, want the CQ's error", ev)
	}
}

// TestOneWay checks that QPs may have queues of length 0.
func TestOneWay(t *testing.T) {
	r := openRig(t)
	q := r.newQP(ib.RC, func(init *ib.QPInit) { init.Cap = ib.QPCap{} })
	r.ready(q, q.Num())
	if _, err := q.PostSend([]ib.SendWR{{Opcode: ib.WRSend}}); !errors.Is(err, ib.ErrQueueFull) {
		t.Errorf("send on a queue of none: %v, want %v", err, ib.ErrQueueFull)
	}
	if _, err := q.PostRecv([]ib.RecvWR{{}}); !errors.Is(err, ib.ErrQueueFull) {
		t.Errorf("receive on a queue of none: %v, want %v", err, ib.ErrQueueFull)
	}
}

// TestXRC checks that XRC works, or is refused as not supported.
func TestXRC(t *testing.T) {
	r := openRig(t)
	domain, err := r.AllocXRCD()
	if r.Attr().Caps&ib.CapXRC == 0 {
		if !errors.Is(err, ib.ErrNotSupported) {
			t.Errorf("XRC domain on a device without XRC: %v, want %v", err, ib.ErrNotSupported)
		}
		if _, err := r.pd.CreateQP(ib.QPInit{Type: ib.XRCINI, SendCQ: r.cq, Cap: defaultCap}); err == nil {
			t.Error("XRC initiator on a device without XRC")
		}
		return
	}
	r.must(err)
	s := try(r.pd.CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1}, XRCD: domain,
		CQ: r.cq}))(r)
	if s.Num() == 0 {
		t.Error("an XRC SRQ without a number")
	}
	if err := domain.Close(); !errors.Is(err, ib.ErrBusy) {
		t.Errorf("closed a domain with an SRQ: %v, want %v", err, ib.ErrBusy)
	}
}

// TestChannel checks that there is one event for each arming, only for the kind of completion
// that was asked for, and that a wait ends with its context and with its channel.
func TestChannel(t *testing.T) {
	r := openRig(t)
	a, b := r.newPair(ib.RC)
	mr, _ := r.register(64)
	receive := ib.RecvWR{ID: 2, SGL: []ib.SGE{sge(mr, 0, 8)}}
	r.recv(b, receive, receive)

	other := r.newCQ(16)
	r.must(r.cq.Arm(true))
	r.send(a, ib.SendWR{ID: 1, Opcode: ib.WRSend, SGL: []ib.SGE{sge(mr, 8, 8)}})
	canceled, cancel := context.WithCancel(r.ctx)
	done := make(chan error)
	go func() {
		_, err := r.ch.Wait(canceled)
		done <- err
	}()
	var wcs [4]ib.WC
	for try(r.cq.Poll(wcs[:]))(r) == 0 { // poll: the CQ is armed for solicited completions only
		r.must(other.Arm(false)) // a system call yields the only CPU
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("an unsolicited message ended the wait: %v, want %v", err, context.Canceled)
	}
	r.send(a, ib.SendWR{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSolicited, SGL: []ib.SGE{sge(mr, 8, 8)}})
	if cq := try(r.ch.Wait(r.ctx))(r); cq != r.cq {
		t.Errorf("an event of %v, want %v", cq, r.cq)
	}
	if n := try(r.cq.Poll(wcs[:]))(r); n != 1 || wcs[0].ID != 2 {
		t.Errorf("%d completions %+v; want 1 of ID 2", n, wcs[:n])
	}

	ch := try(r.CreateChannel())(r)
	for range 2 { // two waiters
		go func() {
			_, err := ch.Wait(r.ctx)
			done <- err
		}()
	}
	r.must(ch.Close())
	for range 2 {
		if err := <-done; !errors.Is(err, ib.ErrClosed) {
			t.Errorf("wait on a closed channel: %v, want %v", err, ib.ErrClosed)
		}
	}
	canceled, cancel = context.WithCancel(r.ctx)
	cancel()
	if _, err := r.NextEvent(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("waited for an event with a canceled context: %v, want %v", err, context.Canceled)
	}
}

// TestUntakenEvents checks that a CQ with unread events can be closed.
func TestUntakenEvents(t *testing.T) {
	r := openRig(t)
	a := r.newQP(ib.RC)
	r.ready(a, a.Num())
	r.must(a.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	for range 3 {
		r.must(r.cq.Arm(false))
		r.send(a, ib.SendWR{Opcode: ib.WRSend})
		var wcs [4]ib.WC
		for try(r.cq.Poll(wcs[:]))(r) == 0 {
		}
	}
	r.must(a.Close())
	r.must(r.cq.Close())
	other := r.newCQ(16)
	b := r.newQP(ib.RC, func(init *ib.QPInit) { init.SendCQ, init.RecvCQ = other, other })
	r.ready(b, b.Num())
	r.must(b.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	r.must(other.Arm(false))
	r.send(b, ib.SendWR{Opcode: ib.WRSend})
	if cq := try(r.ch.Wait(r.ctx))(r); cq != other {
		t.Errorf("an event of %v, a closed CQ or another, want %v", cq, other)
	}
}

// TestDrain checks that a QP that goes to SQD reports when it is drained.
func TestDrain(t *testing.T) {
	r := openRig(t)
	a, _ := r.newPair(ib.RC)
	r.must(a.Modify(ib.QPAttr{State: ib.StateSQD, SQDNotify: true}, ib.AttrState|ib.AttrSQDNotify))
	if ev := try(r.NextEvent(r.ctx))(r); ev != (ib.Event{Type: ib.EventSQDrained, QP: a}) {
		t.Errorf("event %+v, want the QP drained", ev)
	}
	if attr := try(a.Query())(r); attr.State != ib.StateSQD || attr.Draining {
		t.Errorf("drained, yet %v, draining %v; want %v, false", attr.State, attr.Draining, ib.StateSQD)
	}
	r.must(a.Modify(ib.QPAttr{State: ib.StateRTS}, ib.AttrState))
}

// TestResize checks that a CQ keeps its completions, and cannot become too small for them.
func TestResize(t *testing.T) {
	r := openRig(t)
	cq := r.newCQ(4)
	q := r.newQP(ib.RC, func(init *ib.QPInit) { init.SendCQ = cq })
	r.ready(q, q.Num())
	r.must(q.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState))
	for i := range uint64(4) {
		r.must(cq.Arm(false))
		r.send(q, ib.SendWR{ID: i, Opcode: ib.WRSend})
		try(r.ch.Wait(r.ctx))(r)
	}
	if err := cq.Resize(1); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("resized 4 completions to 1 place: %v, want %v", err, ib.ErrInvalid)
	}
	r.must(cq.Resize(100))
	if cq.Entries() < 100 {
		t.Errorf("%d entries, want at least 100", cq.Entries())
	}
	for i := range uint64(4) {
		if wc := r.next(cq); wc.ID != i {
			t.Errorf("completion %+v, want that of request %d", wc, i)
		}
	}
	for _, n := range []int{0, -1, r.Attr().MaxCQE + 1} {
		if err := cq.Resize(n); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("resized to %d: %v, want %v", n, err, ib.ErrInvalid)
		}
	}
}

// busy returns objects that are in use, by the text that the error of closing them must contain.
func (r *rig) busy() map[string]interface{ Close() error } {
	s := try(r.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1}}))(r)
	r.newQP(ib.RC, func(init *ib.QPInit) { init.SRQ = s })
	r.register(64)
	return map[string]interface{ Close() error }{"1 QP, 1 SRQ, 1 memory region": r.pd, "1 QP": s, "1 CQ": r.ch}
}

func TestBusy(t *testing.T) {
	r := openRig(t)
	for who, o := range r.busy() {
		if err := o.Close(); !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(), who) {
			t.Errorf("%v: want busy by %s", err, who)
		}
	}
	if err := r.cq.Close(); !errors.Is(err, ib.ErrBusy) {
		t.Errorf("closed a CQ of a QP: %v, want %v", err, ib.ErrBusy)
	}
}

// TestForeign checks that arguments that are nil, of another device or closed are refused,
// each with its own error, which names the argument.
func TestForeign(t *testing.T) {
	r := openRig(t)
	other := try(Open(r.Attr().Name))(r)
	defer other.Close()
	foreign := try(other.CreateCQ(ib.CQInit{Entries: 1}))(r)
	closed := r.newCQ(1)
	r.must(closed.Close())
	r.must(closed.Close())
	for _, c := range []struct {
		cq   ib.CQ
		want error
	}{{nil, ib.ErrInvalid}, {foreign, ib.ErrForeign}, {closed, ib.ErrClosed}} {
		for attr, init := range map[string]ib.QPInit{
			"SendCQ": {Type: ib.RC, SendCQ: c.cq, RecvCQ: r.cq, Cap: defaultCap},
			"RecvCQ": {Type: ib.UD, SendCQ: r.cq, RecvCQ: c.cq, Cap: defaultCap},
		} {
			_, err := r.pd.CreateQP(init)
			if e := new(ib.AttrError); !errors.As(err, &e) || !errors.Is(err, c.want) || e.Attr != attr {
				t.Errorf("%v: want %s, %v", err, attr, c.want)
			}
		}
	}
	ch := try(other.CreateChannel())(r)
	if _, err := r.CreateCQ(ib.CQInit{Entries: 1, Channel: ch}); !errors.Is(err, ib.ErrForeign) {
		t.Errorf("a channel of another device: %v, want %v", err, ib.ErrForeign)
	}
}

// TestClosed calls every verb of every object after its device was closed.
func TestClosed(t *testing.T) {
	r := openRig(t)
	d := try(Open(r.Attr().Name))(r)
	pd := try(d.AllocPD())(r)
	ch := try(d.CreateChannel())(r)
	cq := try(d.CreateCQ(ib.CQInit{Entries: 4, Channel: ch}))(r)
	q := try(pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: cq, Cap: defaultCap}))(r)
	s := try(pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1, MaxSGE: 1}}))(r)
	m := try(pd.RegMR(ib.MRInit{Buf: make([]byte, 8)}))(r)
	w := try(pd.AllocMW(ib.MWType1))(r)
	a := try(pd.CreateAH(r.here()))(r)
	r.must(d.Close())
	r.must(d.Close())
	group := ib.GID{0: 0xFF, 15: 1}
	for name, err := range map[string]error{
		"QueryPort": second(d.QueryPort(1)), "GIDs": second(d.GIDs(1)), "PKey": second(d.PKey(1, 0)),
		"AllocPD": second(d.AllocPD()), "AllocXRCD": second(d.AllocXRCD()), "CreateChannel": second(d.CreateChannel()),
		"CreateCQ": second(d.CreateCQ(ib.CQInit{Entries: 1})), "NextEvent": second(d.NextEvent(r.ctx)),
		"RegMR": second(pd.RegMR(ib.MRInit{Buf: make([]byte, 8)})), "AllocMW": second(pd.AllocMW(ib.MWType2)),
		"CreateAH":  second(pd.CreateAH(r.here())),
		"CreateSRQ": second(pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 1}})),
		"CreateQP":  second(pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: cq})),
		"Poll":      second(cq.Poll(make([]ib.WC, 1))), "Arm": cq.Arm(false), "Resize": cq.Resize(8),
		"Wait":      second(ch.Wait(r.ctx)),
		"QP.Modify": q.Modify(ib.QPAttr{}, ib.AttrState), "QP.Query": second(q.Query()),
		"QP.PostSend": second(q.PostSend([]ib.SendWR{{}})), "QP.PostRecv": second(q.PostRecv([]ib.RecvWR{{}})),
		"AttachMulticast": q.AttachMulticast(group), "DetachMulticast": q.DetachMulticast(group),
		"SRQ.Modify": s.Modify(ib.SRQAttr{}, ib.SRQLimit), "SRQ.Query": second(s.Query()),
		"SRQ.PostRecv": second(s.PostRecv([]ib.RecvWR{{}})),
		"Rereg":        m.Rereg(ib.ReregAccess, nil, ib.MRInit{}), "Bind": w.Bind(q, 1, 0, ib.MWBind{}),
		"AH.Query": second(a.Query()), "AH.Modify": a.Modify(r.here()),
	} {
		if !errors.Is(err, ib.ErrClosed) {
			t.Errorf("%s after Close: %v, want %v", name, err, ib.ErrClosed)
		}
	}
	for _, o := range []interface{ Close() error }{q, s, m, w, a, cq, ch, pd} {
		if err := o.Close(); err != nil {
			t.Errorf("close of what the device has closed: %v", err)
		}
	}
	// Getters must not access the C objects, which have been freed.
	_, _, _, _, _ = m.Addr(), m.Len(), m.LKey(), m.RKey(), w.RKey()
	_, _, _ = cq.Entries(), q.Num(), a.Num()
}

// TestCloseUnderWay closes a device while other goroutines post, poll, wait and query.
func TestCloseUnderWay(t *testing.T) {
	r := openRig(t)
	d := try(Open(r.Attr().Name))(r)
	pd := try(d.AllocPD())(r)
	ch := try(d.CreateChannel())(r)
	cq := try(d.CreateCQ(ib.CQInit{Entries: 64, Channel: ch}))(r)
	q := try(pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: cq, Cap: defaultCap}))(r)
	a := try(pd.CreateAH(r.here()))(r)
	r.ready(q, 0)
	var begun, ended sync.WaitGroup
	for _, verb := range []func() error{
		func() error {
			return second(q.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline, AH: a.Num(),
				RemoteQPN: q.Num()}}))
		},
		func() error { return second(q.PostRecv([]ib.RecvWR{{}})) },
		func() error { return second(cq.Poll(make([]ib.WC, 4))) },
		func() error { return second(ch.Wait(r.ctx)) },
		func() error { return second(d.NextEvent(r.ctx)) },
		func() error { return cq.Arm(false) },
		func() error { return a.Modify(r.here()) },
		func() error { return second(q.Query()) },
	} {
		begun.Add(1)
		ended.Go(func() {
			begun.Done()
			err := verb()
			for err == nil || errors.Is(err, ib.ErrQueueFull) {
				err = verb()
			}
			if !errors.Is(err, ib.ErrClosed) {
				t.Errorf("a verb under way ended with %v, want %v", err, ib.ErrClosed)
			}
		})
	}
	begun.Wait()
	r.must(d.Close())
	ended.Wait()
}

// TestNothingRemains checks that closing a device leaves no descriptor and no goroutine,
// whatever was open and whichever calls were waiting.
func TestNothingRemains(t *testing.T) {
	r := openRig(t)
	round := func() {
		d := try(Open(r.Attr().Name))(r)
		var waiting sync.WaitGroup
		for range 3 {
			ch := try(d.CreateChannel())(r)
			try(d.CreateCQ(ib.CQInit{Entries: 4, Channel: ch}))(r)
			waiting.Go(func() { _, _ = ch.Wait(r.ctx) })
			waiting.Go(func() { _, _ = d.NextEvent(r.ctx) })
			cq := try(d.CreateCQ(ib.CQInit{Entries: 4}))(r)
			waiting.Go(func() { _, _ = ib.WaitOne(r.ctx, cq) })
		}
		r.must(d.Close())
		waiting.Wait()
	}
	count := func() (fds, goroutines int) {
		return len(try(os.ReadDir("/proc/self/fd"))(r)), runtime.NumGoroutine()
	}
	round() // opens descriptors that the process keeps, such as the runtime's poller
	fds, goroutines := count()
	for range 5 {
		round()
	}
	require.Until(t, fmt.Sprintf("at most %d descriptors and %d goroutines, as before", fds, goroutines), func() bool {
		f, g := count() // goroutines end after Done
		return f <= fds && g <= goroutines
	})
}

// TestNoAllocation checks that posting and polling allocate nothing.
func TestNoAllocation(t *testing.T) {
	r := openRig(t)
	a, b := r.newPair(ib.RC)
	mr, _ := r.register(64)
	recv := []ib.RecvWR{{ID: 2, SGL: []ib.SGE{sge(mr, 0, 8)}}}
	send := []ib.SendWR{{ID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, Inline: make([]byte, 8)}}
	wcs := make([]ib.WC, 4)
	n := testing.AllocsPerRun(50, func() {
		_, recvErr := b.PostRecv(recv)
		_, sendErr := a.PostSend(send)
		for done := 0; done < 2; {
			got, err := r.cq.Poll(wcs)
			if err != nil || recvErr != nil || sendErr != nil {
				t.Fatal(err, recvErr, sendErr)
			}
			done += got
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a message, want none", n)
	}
}
