package device_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

// over is a cancelled context: NextEvent with it returns a queued event or an error at once.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// cmEnd is a channel of a host's connection manager, in virtual time.
type cmEnd struct {
	w  *world
	h  *host
	ch ib.CM
}

func (w *world) newCM(h *host) *cmEnd {
	w.t.Helper()
	ch, err := h.dev.OpenCM()
	must(w.t, err)
	return &cmEnd{w, h, ch}
}

// events returns all queued events.
func (c *cmEnd) events() (all []ib.CMEvent) {
	c.w.t.Helper()
	c.w.settle()
	for {
		ev, err := c.ch.NextEvent(over)
		if errors.Is(err, context.Canceled) {
			return all
		}
		must(c.w.t, err)
		all = append(all, ev)
	}
}

// next returns the only queued event.
func (c *cmEnd) next(want ib.CMEventType) ib.CMEvent {
	c.w.t.Helper()
	all := c.events()
	if len(all) != 1 || all[0].Type != want {
		c.w.t.Fatalf("events %v, want %v", types(all), want)
	}
	return all[0]
}

func types(events []ib.CMEvent) (all []ib.CMEventType) {
	for _, ev := range events {
		all = append(all, ev.Type)
	}
	return all
}

func (c *cmEnd) id() ib.CMID {
	c.w.t.Helper()
	id, err := c.ch.CreateID(ib.CMIDInit{})
	must(c.w.t, err)
	return id
}

// listen listens at all addresses.
func (c *cmEnd) listen(port uint16, backlog int) ib.CMID {
	c.w.t.Helper()
	id := c.id()
	must(c.w.t, id.Bind(netip.AddrPortFrom(netip.IPv6Unspecified(), port)))
	must(c.w.t, id.Listen(backlog))
	return id
}

// resolved makes an ID whose address and route to a port of a host are resolved.
func (c *cmEnd) resolved(to *host, port uint16) ib.CMID {
	c.w.t.Helper()
	id := c.id()
	must(c.w.t, id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(to.gid().Addr(), port), 0))
	must(c.w.t, id.ResolveRoute(0))
	if got := types(c.events()); !slices.Equal(got, []ib.CMEventType{ib.CMAddrResolved, ib.CMRouteResolved}) {
		c.w.t.Fatalf("resolving raised %v, want %v", got, []ib.CMEventType{ib.CMAddrResolved, ib.CMRouteResolved})
	}
	return id
}

// param returns parameters with a new QP of the host.
func (c *cmEnd) param() ib.CMConnParam {
	c.w.t.Helper()
	q := c.w.newQP(c.h, ib.QPInit{Type: ib.RC})
	return ib.CMConnParam{QPN: q.Num(), RetryCount: 7, RNRRetry: 7}
}

// nothingLeft advances the time until the connection managers hold no state.
func (w *world) nothingLeft() {
	w.t.Helper()
	for range 10_000 {
		if !w.advance() {
			break
		}
	}
	for _, h := range []*host{w.a, w.b} {
		if st := h.dev.CMStats(); st.Open != 0 {
			w.t.Errorf("%v: got %d connections held, want none", h.gid().Addr(), st.Open)
		}
	}
}

// TestCMSilence: a REQ without an answer is sent 16 times in 22.2 s of virtual time.
func TestCMSilence(t *testing.T) {
	var deaf wrap.Rules
	_, err := deaf.Add(wrap.Rule{Action: wrap.ActDrop, Direction: wrap.DirIn})
	must(t, err)
	w := newWorld(t, 1, 64, stack{above: deaf.Above, below: same})
	a := w.newCM(w.a)
	id := a.resolved(w.b, 7471)
	began := w.now
	must(t, id.Connect(a.param()))
	for w.advance() {
	}
	ev := a.next(ib.CMUnreachable)
	if ev.Status != -110 || ev.Tries != 16 || ev.ID != id {
		t.Errorf("%+v, want status -110 after 16 tries", ev)
	}
	if d := w.now - began; d < 22.2e9-2e6 || d > 23.8e9+2e6 {
		t.Errorf("after %d ms, want 22,198 to 23,802", d/1e6)
	}
	w.nothingLeft()
}

// TestCMSeed: the numbers in messages are repeatable with the device's seed, and only then.
func TestCMSeed(t *testing.T) {
	numbers := func(seed uint64) (ns [2]ib.PSN) {
		w := newWorld(t, seed, 64, plain)
		a, b := w.newCM(w.a), w.newCM(w.b)
		b.listen(7471, 0)
		id := a.resolved(w.b, 7471)
		must(t, id.Connect(a.param()))
		attr, _, err := b.next(ib.CMConnectRequest).ID.InitQPAttr(ib.StateRTS)
		must(t, err)
		return [2]ib.PSN{attr.RQPSN, attr.SQPSN}
	}
	if a, b := numbers(5), numbers(5); a != b {
		t.Errorf("PSNs %#x and %#x with one seed, want the same", a, b)
	}
	if a, b := numbers(5), numbers(6); a[0] == b[0] || a[1] == b[1] {
		t.Errorf("PSNs %#x and %#x with two seeds, want others", a, b)
	}
}

// stages are the stages of a connection at which one end dies. Each brings the ends there and
// has the event that the survivor gets; none if it does not know of the other end.
var stages = []struct {
	name  string
	reach func(t *testing.T, dies, lives *cmEnd)
	want  []ib.CMEventType
}{
	{"bound", func(t *testing.T, dies, _ *cmEnd) {
		must(t, dies.id().Bind(netip.AddrPortFrom(netip.IPv6Unspecified(), 7471)))
	}, nil},
	{"resolved", func(_ *testing.T, dies, lives *cmEnd) { dies.resolved(lives.h, 7471) }, nil},
	{"listening", func(_ *testing.T, dies, _ *cmEnd) { dies.listen(7471, 0) }, nil},
	{"asking", func(t *testing.T, dies, lives *cmEnd) {
		lives.listen(7471, 0)
		must(t, dies.resolved(lives.h, 7471).Connect(dies.param()))
		lives.next(ib.CMConnectRequest)
	}, []ib.CMEventType{ib.CMRejected}},
	{"asked, and has not read it", func(t *testing.T, dies, lives *cmEnd) {
		dies.listen(7471, 0)
		must(t, lives.resolved(dies.h, 7471).Connect(lives.param()))
	}, []ib.CMEventType{ib.CMRejected}},
	{"asked", func(t *testing.T, dies, lives *cmEnd) {
		dies.listen(7471, 0)
		must(t, lives.resolved(dies.h, 7471).Connect(lives.param()))
		dies.next(ib.CMConnectRequest)
	}, []ib.CMEventType{ib.CMRejected}},
	{"answered", func(t *testing.T, dies, lives *cmEnd) {
		half(t, lives, dies)
	}, []ib.CMEventType{ib.CMConnectResponse, ib.CMRejected}},
	{"got the answer", func(t *testing.T, dies, lives *cmEnd) {
		half(t, dies, lives)
		dies.next(ib.CMConnectResponse)
	}, []ib.CMEventType{ib.CMRejected}},
	{"connected, active", func(t *testing.T, dies, lives *cmEnd) {
		whole(t, dies, lives)
	}, []ib.CMEventType{ib.CMDisconnected, ib.CMTimewaitExit}},
	{"connected, passive", func(t *testing.T, dies, lives *cmEnd) {
		whole(t, lives, dies)
	}, []ib.CMEventType{ib.CMDisconnected, ib.CMTimewaitExit}},
	{"disconnecting", func(t *testing.T, dies, lives *cmEnd) {
		id, _ := whole(t, dies, lives)
		must(t, id.Disconnect())
	}, []ib.CMEventType{ib.CMDisconnected, ib.CMTimewaitExit}},
	{"in timewait", func(t *testing.T, dies, lives *cmEnd) {
		id, _ := whole(t, dies, lives)
		must(t, id.Disconnect())
		dies.next(ib.CMDisconnected)
		lives.next(ib.CMDisconnected)
	}, []ib.CMEventType{ib.CMTimewaitExit}},
}

// half makes a connection that waits for Establish of the active end.
func half(t *testing.T, active, passive *cmEnd) (a, p ib.CMID) {
	t.Helper()
	passive.listen(7471, 0)
	a = active.resolved(passive.h, 7471)
	must(t, a.Connect(active.param()))
	p = passive.next(ib.CMConnectRequest).ID
	must(t, p.Accept(passive.param()))
	active.w.settle()
	return a, p
}

// whole makes an established connection.
func whole(t *testing.T, active, passive *cmEnd) (a, p ib.CMID) {
	t.Helper()
	a, p = half(t, active, passive)
	active.next(ib.CMConnectResponse)
	must(t, a.Establish())
	passive.next(ib.CMEstablished)
	return a, p
}

// TestCMOwnerDies: at whichever stage an owner's channel closes, its peer gets the message at
// once, its port is free, and only timewait is left.
func TestCMOwnerDies(t *testing.T) {
	for _, s := range stages {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, 1, 64, plain)
			dies, lives := w.newCM(w.a), w.newCM(w.b)
			s.reach(t, dies, lives)
			died := w.now
			must(t, dies.ch.Close())
			w.settle()
			if w.now != died {
				t.Errorf("got %d ns passed, want none", w.now-died)
			}
			got := types(lives.events())
			if n := len(s.want) - 1; n >= 0 && s.want[n] != ib.CMTimewaitExit && !slices.Equal(got, s.want) {
				t.Errorf("the survivor has %v, want %v", got, s.want)
			}
			w.newCM(w.a).listen(7471, 0) // fails the test if the port is not free
			w.nothingLeft()
			if got = append(got, types(lives.events())...); !slices.Equal(got, s.want) {
				t.Errorf("in the end the survivor has %v, want %v", got, s.want)
			}
		})
	}
}

// TestCMDeviceCloses: when a device closes, its owners get CMDeviceRemoval, and its peers a DREQ.
func TestCMDeviceCloses(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	a, b := w.newCM(w.a), w.newCM(w.b)
	whole(t, a, b)
	must(t, w.a.dev.Close())
	if ev, err := a.ch.NextEvent(over); err != nil || ev.Type != ib.CMDeviceRemoval {
		t.Errorf("%v, %v; want %v", ev.Type, err, ib.CMDeviceRemoval)
	}
	if _, err := a.ch.NextEvent(t.Context()); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("then %v, want %v", err, ib.ErrClosed)
	}
	if _, err := a.ch.CreateID(ib.CMIDInit{}); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("a new ID: got %v, want %v", err, ib.ErrClosed)
	}
	must(t, a.ch.Close())
	w.b.dev.Step(w.now)
	if ev, err := b.ch.NextEvent(over); err != nil || ev.Type != ib.CMDisconnected {
		t.Errorf("the peer has %v, %v; want %v", ev.Type, err, ib.CMDisconnected)
	}
}

// TestCMAddressGone: IDs get an event when the port loses their address.
func TestCMAddressGone(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	a, b := w.newCM(w.a), w.newCM(w.b)
	id, _ := whole(t, a, b)
	other := ib.GIDFromAddr(netip.MustParseAddr("192.0.2.77"))
	for _, g := range []ib.GID{other, gidA, other} { // unread events do not accumulate
		must(t, w.a.dev.SetAddresses([]ib.GID{g}))
	}
	if ev := a.next(ib.CMAddrChange); ev.ID != id || ev.Status != -99 {
		t.Errorf("%+v, want ID %v, status -99", ev, id)
	}
	must(t, id.Disconnect()) // its DREQ cannot be sent
	for w.advance() {
	}
	if got := types(a.events()); !slices.Equal(got, []ib.CMEventType{ib.CMDisconnected, ib.CMTimewaitExit}) {
		t.Errorf("events %v, want %v", got, []ib.CMEventType{ib.CMDisconnected, ib.CMTimewaitExit})
	}
}

// TestCMLoopback: a loopback address means the device's first address.
func TestCMLoopback(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	a := w.newCM(w.a)
	local := func(id ib.CMID) ib.CMIDAttr {
		q, err := id.Query()
		must(t, err)
		return q
	}
	bound := a.id()
	must(t, bound.Bind(netip.MustParseAddrPort("127.0.0.1:7471")))
	if got, want := local(bound).Local, netip.AddrPortFrom(gidA.Addr(), 7471); got != want {
		t.Errorf("bound to %v, want %v", got, want)
	}
	for _, dst := range []string{"127.0.0.1:7471", "0.0.0.0:7471"} {
		id := a.id()
		must(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(dst), 0))
		a.next(ib.CMAddrResolved)
		if q := local(id); q.Remote.Addr() != gidA.Addr() || q.Local.Addr() != gidA.Addr() {
			t.Errorf("%s is %v, from %v; want %v for both", dst, q.Remote, q.Local, gidA)
		}
	}
	if err := a.id().Bind(netip.MustParseAddrPort("[::1]:7471")); !errors.Is(err, ib.ErrNoAddr) {
		t.Errorf("bind to ::1 without an address of that family: got %v, want %v", err, ib.ErrNoAddr)
	}
}

// asTenant opens a channel for a tenant.
func (w *world) asTenant(h *host, l device.CMLimits, tenant device.Tenant) *cmEnd {
	w.t.Helper()
	ch, err := h.dev.OpenCMFor(h.dev.NewCMOwner(l), tenant, false)
	must(w.t, err)
	return &cmEnd{w, h, ch}
}

// TestCMLimits: the limits of an owner hold for all its channels together.
func TestCMLimits(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	a := w.newCM(w.a)
	owner := w.b.dev.NewCMOwner(device.CMLimits{IDs: 4, HalfOpen: 2, Backlog: 3, MayBind: func(s ib.PortSpace,
		port uint16) error {
		if port < 1024 {
			return fmt.Errorf("port %d of %v: %w", port, s, os.ErrPermission)
		}
		return nil
	}})
	var b [2]*cmEnd
	for i := range b {
		ch, err := w.b.dev.OpenCMFor(owner, nil, false)
		must(t, err)
		b[i] = &cmEnd{w, w.b, ch}
	}
	low := b[0].id()
	if err := low.Bind(netip.AddrPortFrom(netip.IPv6Unspecified(), 1023)); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a port below 1024: got %v, want %v", err, os.ErrPermission)
	}
	must(t, low.Close())
	b[0].listen(7471, 0)

	// Three requests: the third evicts the first, because only two may be half open.
	ask := func() ib.CMID {
		id := a.resolved(w.b, 7471)
		must(t, id.Connect(a.param()))
		w.settle()
		return id
	}
	first := ask()
	requested := b[0].next(ib.CMConnectRequest).ID
	ask()
	ask()
	if ev := a.next(ib.CMRejected); ev.ID != first || ev.Status != int(ib.RejectNoResources) {
		t.Errorf("%+v, want the oldest to be rejected", ev)
	}
	if got := b[0].events(); len(got) != 3 || got[2].Type != ib.CMUnreachable && got[0].Type != ib.CMUnreachable &&
		got[1].Type != ib.CMUnreachable {
		t.Errorf("events %v, want two requests and the end of the first", types(got))
	}
	must(t, requested.Close())

	// Four IDs: the listener, two requests and one more.
	extra := b[1].id()
	if _, err := b[1].ch.CreateID(ib.CMIDInit{}); !errors.Is(err, ib.ErrLimit) {
		t.Errorf("a fifth ID: got %v, want %v", err, ib.ErrLimit)
	}
	late := ask()
	if ev := a.next(ib.CMRejected); ev.ID != late || ev.Status != int(ib.RejectNoResources) {
		t.Errorf("%+v, want a request beyond the IDs to be rejected", ev)
	}
	must(t, extra.Close())
	for _, c := range b {
		must(t, c.ch.Close())
	}
	must(t, a.ch.Close())
	w.nothingLeft()
}

// TestCMRoutes: at most 32 calls of Options.Route run at a time for an owner, and an ID counts against its owner's
// limit until its call has returned, even if it is closed before.
func TestCMRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, ids = 32, 40
		answer := make(chan struct{})
		var calls, running atomic.Int32
		dev := newTargetWith(t, device.Options{Route: func(_, _ netip.Addr, _ ib.MTU) (ib.MTU, int) {
			calls.Add(1)
			running.Add(1)
			defer running.Add(-1)
			<-answer
			return ib.MTU1024, 0
		}}).dev
		ch, err := dev.OpenCMFor(dev.NewCMOwner(device.CMLimits{IDs: ids}), nil, false)
		must(t, err)
		var left ib.CMID
		for range ids {
			if left != nil {
				must(t, left.Close())
			}
			left, err = ch.CreateID(ib.CMIDInit{})
			must(t, err)
			must(t, left.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(gidB.Addr(), 7471), 0))
			must(t, left.ResolveRoute(0))
		}
		synctest.Wait()
		if n := running.Load(); n != limit {
			t.Errorf("%d calls run, want %d", n, limit)
		}
		if _, err := ch.CreateID(ib.CMIDInit{}); !errors.Is(err, ib.ErrLimit) {
			t.Errorf("an ID more while all calls run: %v, want ErrLimit", err)
		}
		close(answer)
		synctest.Wait()
		if n := calls.Load(); n != ids {
			t.Errorf("%d calls, want %d", n, ids)
		}
		if a, err := left.Query(); err != nil || a.PathMTU != ib.MTU1024 {
			t.Errorf("the open ID has path MTU %d, %v, want %v", a.PathMTU, err, ib.MTU1024)
		}
		for i := range ids { // left is open
			if _, err := ch.CreateID(ib.CMIDInit{}); (err == nil) != (i < ids-1) {
				t.Fatalf("ID %d of %d: %v; want it made: %v", i+2, ids, err, i < ids-1)
			}
		}
	})
}

// tenant plays another process.
type tenant struct {
	rings [][]byte
	sends []*device.QP
}

func (a *tenant) Alloc(n int) ([]byte, error) {
	a.rings = append(a.rings, ring.Alloc(n))
	return a.rings[len(a.rings)-1], nil
}
func (*tenant) Notify(*device.CQ)         {}
func (*tenant) QPFailed(device.QPFailure) {}
func (*tenant) Fault(uintptr)             {}
func (*tenant) Event(ib.Event)            {}
func (*tenant) Stage(*device.QP) bool     { return true }

// Take rings for each QP that has sent.
func (a *tenant) Take(_ ib.Instant, ring func(*engine.QP)) {
	for _, q := range a.sends {
		ring(q.Part())
	}
	a.sends = nil
}
func (*tenant) Sleep() bool      { return false }
func (*tenant) Awake(ib.Instant) {}
func (*tenant) Faulted() bool    { return false }
func (*tenant) GiveWay() bool    { return false }

// watcher is a link that would look at a file descriptor.
type watcher struct{ link.Link }

func (watcher) Watch(int) error { return nil }

// TestCMOwner: an owner may only name QPs of its own, as the active end and as the passive one,
// and may not send as another host.
func TestCMOwner(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	victim := w.newQP(w.a, ib.QPInit{Type: ib.RC}).Num()
	me := &tenant{}
	pd, err := w.a.dev.AllocPDFor(me, nil)
	must(t, err)
	cq, err := w.a.dev.CreateCQFor(me, ib.CQInit{Entries: 64})
	must(t, err)
	mine, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})
	must(t, err)
	second, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})
	must(t, err)
	other, err := pd.CreateQP(ib.QPInit{Type: ib.UC, SendCQ: cq, RecvCQ: cq})
	must(t, err)

	a, b := w.asTenant(w.a, device.CMLimits{}, me), w.newCM(w.b)
	b.listen(7471, 0)
	id := a.resolved(w.b, 7471)
	refused := func(what string, err error) {
		t.Helper()
		var attr *ib.AttrError
		if !errors.As(err, &attr) || attr.Attr != "QPN" || !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%s: %v, want a refusal of the QPN", what, err)
		}
	}
	for _, q := range []ib.QPN{victim, 0, ib.QPNGSI, ib.QPNMulticast, other.Num(), 0x7FFFFF} {
		refused(fmt.Sprintf("a REQ that names QP %#x", uint32(q)), id.Connect(ib.CMConnParam{QPN: q}))
	}
	w.settle()
	if st := w.b.dev.CMStats(); st.Received.Of(wire.AttrREQ) != 0 {
		t.Error("a refused REQ was sent")
	}
	must(t, id.Connect(ib.CMConnParam{QPN: mine.Num()}))
	b.next(ib.CMConnectRequest)

	l, err := a.ch.CreateID(ib.CMIDInit{})
	must(t, err)
	must(t, l.Bind(netip.AddrPortFrom(netip.IPv6Unspecified(), 7471)))
	must(t, l.Listen(0))
	must(t, b.resolved(w.a, 7471).Connect(b.param()))
	asked := a.next(ib.CMConnectRequest).ID
	refused("a REP that names another's QP", asked.Accept(ib.CMConnParam{QPN: victim}))
	must(t, asked.Accept(ib.CMConnParam{QPN: second.Num()}))
	b.next(ib.CMConnectResponse)

	if err := a.id().Bind(netip.MustParseAddrPort("192.0.2.77:0")); !errors.Is(err, ib.ErrNoAddr) {
		t.Errorf("bind to another host's address: got %v, want %v", err, ib.ErrNoAddr)
	}
	for _, init := range []ib.CMIDInit{{Space: 0x0184}, {ServiceID: 0x1840000 + 7471},
		{ServiceID: 0x1060000 | 0x80_0000}} {
		if _, err := a.ch.CreateID(init); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("an ID whose private data would be a header of its own, %+v: %v, want %v", init, err,
				ib.ErrInvalid)
		}
	}
	if err := asked.Migrate(w.newCM(w.a).ch); !errors.Is(err, ib.ErrForeign) {
		t.Errorf("migration to another owner's channel: got %v, want %v", err, ib.ErrForeign)
	}
}

// TestTenantsToQP1: datagrams from a tenant's QP to QP 1 are not sent.
func TestTenantsToQP1(t *testing.T) {
	w := newWorld(t, 1, 64, stack{above: func(l link.Link) link.Link { return watcher{l} }, below: same})
	a := &tenant{}
	must(t, w.a.dev.SetDoorbells(0, a, 0))
	pd, err := w.a.dev.AllocPDFor(a, nil)
	must(t, err)
	cq, err := w.a.dev.CreateCQFor(a, ib.CQInit{Entries: 64})
	must(t, err)
	ah, err := pd.CreateAH(ib.AHAttr{DGID: gidB})
	must(t, err)
	limits := ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInline: wire.MADLen}
	q, err := pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: cq, Cap: limits})
	must(t, err)
	sq, err := ring.OpenSend(a.rings[len(a.rings)-1][:ring.SendSize(4, 1, wire.MADLen)])
	must(t, err)
	const qkey = 0x80010000 // of QP 1
	w.modify(q, ib.QPAttr{State: ib.StateInit, Port: 1, QKey: qkey},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey)
	w.modify(q, ib.QPAttr{State: ib.StateRTR}, ib.AttrState)
	w.modify(q, ib.QPAttr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN)
	var mad [wire.MADLen]byte
	h := wire.MADHeader{BaseVersion: wire.MADBaseVersion, Class: wire.MADClassCM,
		ClassVersion: wire.MADClassVersionCM, Method: wire.MADMethodSend, Attr: wire.AttrDREQ}
	h.Put(&mad)
	must(t, sq.Push(&ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: mad[:], AH: ah.Num(),
		RemoteQPN: ib.QPNGSI, RemoteQKey: qkey}))
	sq.Publish()
	a.sends = append(a.sends, q.(*device.QP))
	w.settle()
	if n := w.a.dev.Stats().DropForgedMAD; n != 1 {
		t.Errorf("DropForgedMAD is %d, want 1", n)
	}
	if st := w.b.dev.CMStats(); st.Received.Of(wire.AttrDREQ) != 0 {
		t.Error("the tenant's DREQ has arrived")
	}
}
