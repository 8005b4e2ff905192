package device_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

// watching is a link that could be woken by any descriptor.
type watching struct {
	link.Link
	sent func(r *link.Run) // called with each run that is sent; may be nil
}

func (*watching) Watch(int) error { return nil }

func (w *watching) Send(now ib.Instant, runs []link.Run) (int, error) {
	n, err := w.Link.Send(now, runs)
	for i := range runs[:n] {
		if w.sent != nil {
			w.sent(&runs[i])
		}
	}
	return n, err
}

// tenantProcess simulates the process of a tenant: it has the memory of its rings, and doorbells.
type tenantProcess struct {
	t      *testing.T
	last   []byte // the latest allocation
	told   []*device.CQ
	events []ib.EventType

	device, doorbells *ring.Doorbells
	qps               []*device.QP // by doorbell
	looks             int          // how often the device has looked at the doorbells
	asleep            bool         // the device has said so last
}

func (n *tenantProcess) Alloc(size int) ([]byte, error) {
	n.last = ring.Alloc(size)
	return n.last, nil
}

func (n *tenantProcess) Notify(c *device.CQ)       { n.told = append(n.told, c) }
func (n *tenantProcess) QPFailed(device.QPFailure) {}
func (n *tenantProcess) Fault(uintptr)             {}
func (n *tenantProcess) Faulted() bool             { return false }
func (n *tenantProcess) Event(e ib.Event)          { n.events = append(n.events, e.Type) }
func (n *tenantProcess) Stage(*device.QP) bool     { return true }

func (n *tenantProcess) Take(_ ib.Instant, ring func(*engine.QP)) {
	if n.looks++; n.asleep {
		n.t.Error("a device that has not said that it is awake looks at the doorbells")
	}
	n.device.Take(func(first uint32, set uint64) {
		for i := range uint32(64) {
			if set>>i&1 != 0 {
				ring(n.qps[first+i].Part())
			}
		}
	})
}

func (n *tenantProcess) Sleep() bool {
	n.asleep = true
	return n.device.Sleep()
}

func (n *tenantProcess) Awake(ib.Instant) {
	n.asleep = false
	n.device.Awake()
}

func (n *tenantProcess) GiveWay() bool { return false }

// tenantQP is a tenant's QP, its rings, and the other objects that it needs.
type tenantQP struct {
	*tenantProcess
	link   *watching
	dev    *device.Device
	pd     *device.PD
	cq     *device.CQ
	cqRing *ring.CQ
	qp     *device.QP
	sq     *ring.Send
	rq     *ring.Recv
	buf    []byte
	mr     *device.MR
}

func newTenantQP(t *testing.T, network *mem.Network, gid ib.GID) *tenantQP {
	t.Helper()
	a := &tenantQP{tenantProcess: &tenantProcess{t: t}, buf: make([]byte, 4096),
		link: &watching{Link: network.Open([]ib.GID{gid}, mem.Options{})}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	a.dev, err = device.Open(wrap.Seal(a.link), device.Options{Manual: true, Seed: 1, AckDelay: -1,
		InitialWindow: 128})
	must(err)
	t.Cleanup(func() { a.dev.Close() })
	buf := ring.Alloc(ring.DoorbellsSize(1))
	a.device, err = ring.NewDoorbells(buf, 1)
	must(err)
	a.doorbells, err = ring.OpenDoorbells(buf)
	must(err)
	must(a.dev.SetDoorbells(0, a, -1))
	a.pd, err = a.dev.AllocPDFor(a, nil)
	must(err)
	a.cq, err = a.dev.CreateCQFor(a, ib.CQInit{Entries: 16})
	must(err)
	a.cqRing, err = ring.OpenCQ(a.last)
	must(err)
	limits := ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxRecvWR: 4, MaxRecvSGE: 1}
	made, err := a.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: a.cq, RecvCQ: a.cq, Cap: limits})
	must(err)
	a.qp = made.(*device.QP)
	a.qps = []*device.QP{a.qp}
	send := ring.SendSize(limits.MaxSendWR, limits.MaxSendSGE, limits.MaxInline)
	a.sq, err = ring.OpenSend(a.last[:send])
	must(err)
	a.rq, err = ring.OpenRecv(a.last[send:])
	must(err)
	a.mr, err = a.pd.RegMemory(mr.Bytes(a.buf), 0x1000, ib.LocalWrite)
	must(err)
	return a
}

// send posts a request, and rings the doorbell if the device has asked for it.
func (a *tenantQP) send(wr ib.SendWR) {
	a.t.Helper()
	if err := a.sq.Push(&wr); err != nil {
		a.t.Fatal(err)
	}
	if a.sq.Publish() {
		a.doorbells.Ring(0)
	}
}

func (a *tenantQP) recv(wr ib.RecvWR) {
	a.t.Helper()
	if err := a.rq.Push(&wr); err != nil {
		a.t.Fatal(err)
	}
	if a.rq.Publish() {
		a.doorbells.Ring(0)
	}
}

// statuses polls the completions and returns their statuses.
func (a *tenantQP) statuses() (got []ib.WCStatus) {
	var wcs [16]ib.WC
	for _, wc := range wcs[:a.cqRing.Poll(wcs[:])] {
		got = append(got, wc.Status)
	}
	return got
}

func connectTenantQPs(t *testing.T, a, b *tenantQP) {
	t.Helper()
	for _, p := range [][2]*tenantQP{{a, b}, {b, a}} {
		own, peer := p[0], p[1]
		attr := ib.QPAttr{PathMTU: ib.MTU1024, DestQPN: peer.qp.Num(), MaxRdAtomic: 1, MaxDestRdAtomic: 1, Timeout: 14,
			RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
			AH: ib.AHAttr{DGID: peer.dev.Link().Local[0], Port: 1}, Port: 1, Access: ib.RemoteWrite}
		if err := ib.ModifyTo(own.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTenants makes two tenants SEND through their rings: the device takes posted requests when
// the doorbell rings, and notifies the tenant that has armed its CQ.
func TestTenants(t *testing.T) {
	network := mem.NewNetwork()
	a, b := newTenantQP(t, network, gidA), newTenantQP(t, network, gidB)
	connectTenantQPs(t, a, b)
	now := ib.Instant(0)
	run := func() {
		for range 20 {
			now += 1000
			a.dev.Step(now)
			b.dev.Step(now)
		}
	}
	b.recv(ib.RecvWR{SGL: []ib.SGE{{Addr: 0x1000, Length: 100, LKey: b.mr.LKey()}}})
	b.cqRing.Arm(false)
	copy(a.buf, "from ring to ring")
	for range 2 { // the second request rings the doorbell again
		a.send(ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled,
			SGL: []ib.SGE{{Addr: 0x1000, Length: 17, LKey: a.mr.LKey()}}})
		run()
		if got := a.statuses(); !slices.Equal(got, []ib.WCStatus{ib.WCSuccess}) {
			t.Fatalf("the sender's completions: %v, want %v", got, ib.WCSuccess)
		}
		if got := b.statuses(); !slices.Equal(got, []ib.WCStatus{ib.WCSuccess}) {
			t.Fatalf("the receiver's completions: %v, want %v", got, ib.WCSuccess)
		}
		b.recv(ib.RecvWR{SGL: []ib.SGE{{Addr: 0x1000, Length: 100, LKey: b.mr.LKey()}}})
	}
	if string(b.buf[:17]) != "from ring to ring" {
		t.Errorf("received %q, want \"from ring to ring\"", b.buf[:17])
	}
	if len(b.told) != 1 || b.told[0] != b.cq || len(a.told) != 0 {
		t.Errorf("%d and %d notifications, want one, of who has armed once", len(a.told), len(b.told))
	}

	// In ERR receives are flushed. Receives that are posted later ring the doorbell and are
	// flushed too.
	if err := b.qp.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState); err != nil {
		t.Fatal(err)
	}
	run()
	for range 2 {
		b.recv(ib.RecvWR{})
		run()
	}
	if got := b.statuses(); !slices.Equal(got, slices.Repeat([]ib.WCStatus{ib.WCWRFlushErr}, 3)) {
		t.Errorf("in ERR: %v, want three %v", got, ib.WCWRFlushErr)
	}
}

// TestTenantLies: invalid data in a ring moves its tenant's QP to ERR, and affects no others.
func TestTenantLies(t *testing.T) {
	network := mem.NewNetwork()
	a, b := newTenantQP(t, network, gidA), newTenantQP(t, network, gidB)
	connectTenantQPs(t, a, b)
	a.send(ib.SendWR{Opcode: ib.WRSend})
	for i := 256; i < len(a.last); i++ { // all slots
		a.last[i] = 0xFF
	}
	a.dev.Step(1000)
	if got, err := a.qp.Query(); err != nil || got.State != ib.StateErr {
		t.Errorf("the QP is in %v: %v; want %v", got.State, err, ib.StateErr)
	}
	if !slices.Contains(a.events, ib.EventQPFatal) || len(b.events) != 0 {
		t.Errorf("events %v and %v; want %v among the first, none", a.events, b.events, ib.EventQPFatal)
	}
}

// TestTenantsOwnEnd: the verbs that use the application's end of a ring fail in this process.
func TestTenantsOwnEnd(t *testing.T) {
	a := newTenantQP(t, mem.NewNetwork(), gidA)
	srq, err := a.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 3, MaxSGE: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := srq.Query(); err != nil || got.MaxWR != 4 || got.MaxSGE != 1 {
		t.Errorf("the SRQ is %+v: %v; want 4 requests of 1 piece", got, err)
	}
	_, send := a.qp.PostSend(nil)
	_, recv := a.qp.PostRecv(nil)
	_, shared := srq.PostRecv(nil)
	_, poll := a.cq.Poll(nil)
	for i, err := range []error{send, recv, shared, poll, a.cq.Arm(false)} {
		if !errors.Is(err, ib.ErrNotSupported) {
			t.Errorf("verb %d: got %v, want %v", i, err, ib.ErrNotSupported)
		}
	}
	before := a.cq.Entries()
	if err := a.cq.Resize(100); err != nil || a.cq.Entries() != 100 || before != 16 {
		t.Errorf("from %d to %d entries: %v; want 16 to 100", before, a.cq.Entries(), err)
	}
	if _, err := ring.OpenCQ(a.last); err != nil {
		t.Errorf("the new ring: %v", err)
	}
	// SetDoorbells fails on a link that cannot watch descriptors.
	dev, err := device.Open(mem.NewNetwork().Open([]ib.GID{gidB}, mem.Options{}), device.Options{Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := dev.SetDoorbells(0, a, -1); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SetDoorbells on a link in memory: got %v, want %v", err, errors.ErrUnsupported)
	}
}

// TestStepSleeps: after a step that did nothing a doorbell that rings says that the device is to be woken, and the next
// step takes it. After one that did something the device is stepped again, so it need not be woken.
func TestStepSleeps(t *testing.T) {
	a := newTenantQP(t, mem.NewNetwork(), gidA)
	for a.dev.Step(0) {
	}
	for now := ib.Instant(1); now < 4; now++ {
		if !a.doorbells.Ring(0) {
			t.Fatal("a doorbell rings, and the device that sleeps is not to be woken")
		}
		if a.doorbells.Ring(0) {
			t.Error("the device is to be woken twice")
		}
		if !a.dev.Step(now) {
			t.Fatal("a doorbell has rung, and a step does nothing")
		}
		if a.doorbells.Ring(0) {
			t.Error("a doorbell rings, and the device that goes on is to be woken")
		}
		for a.dev.Step(now) {
		}
	}
	if a.dev.Step(4) {
		t.Error("a step does something, and no doorbell has rung")
	}
}
