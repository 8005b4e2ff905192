package client

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// unchanging are the requests after which both sides cannot differ: those that only ask, those about an ID of which the
// client keeps no state, and those that package client does not make.
var unchanging = []abi.Op{abi.OpQueryPort, abi.OpGIDs, abi.OpPKey, abi.OpClock, abi.OpQuerySRQ,
	abi.OpQueryQP, abi.OpQPFailure,
	abi.OpQueryDevice, abi.OpCounters, abi.OpCMQuery, abi.OpCMInitQPAttr,
	abi.OpCMResolveRoute, abi.OpCMConnect, abi.OpCMAccept, abi.OpCMEstablish, abi.OpCMReject, abi.OpCMDelay,
	abi.OpCMDisconnect, abi.OpCMNotify,
	abi.OpOpenQP, abi.OpHold}

// changed is a client with one object of each kind. Its QP is connected to itself, and receives from its SRQ.
type changed struct {
	t      *testing.T
	d      *daemon
	relay  *relay
	dev    *Device
	before map[string]int64 // booked before the change
	alone  map[string]int64 // booked before another connection is made
	err    error            // of the change

	pd         ib.PD
	ch         ib.Channel
	x          ib.XRCD
	cq         ib.CQ
	srq        ib.SRQ
	qp, ud     ib.QP
	buf, other []byte
	mr         ib.MR
	mw         ib.MW
	ah         ib.AH
	cms        [2]ib.CM
	id         ib.CMID
	second     *Device      // on another connection; nil for none
	repeat     func() error // makes the change
}

var group = netip.MustParseAddr("239.1.1.1")

func newChanged(t *testing.T, d *daemon) *changed {
	t.Helper()
	c := &changed{t: t, d: d}
	r, conn := newRelay(t, d)
	c.relay = r
	var err error
	c.dev, err = New(t.Context(), conn, "")
	c.must(err)
	t.Cleanup(func() { _ = c.dev.Close() })
	c.pd = must1(c, c.dev.AllocPD)
	c.ch = must1(c, c.dev.CreateChannel)
	c.x = must1(c, c.dev.AllocXRCD)
	c.cq = must1(c, func() (ib.CQ, error) { return c.dev.CreateCQ(ib.CQInit{Entries: 8}) })
	c.srq = must1(c, c.newSRQ)
	c.qp = must1(c, func() (ib.QP, error) { return c.newQP(ib.RC, c.srq) })
	c.ud = must1(c, func() (ib.QP, error) { return c.newQP(ib.UD, nil) })
	for _, b := range []*[]byte{&c.buf, &c.other} {
		*b = must1(c, func() ([]byte, error) { return Alloc(4096) })
		t.Cleanup(func() { _ = Free(*b) })
	}
	_ = must1(c, func() (ib.MR, error) { return c.pd.RegMR(ib.MRInit{Buf: c.other}) }) // shares the memory
	c.mr = must1(c, func() (ib.MR, error) { return c.pd.RegMR(ib.MRInit{Buf: c.buf, Access: ib.LocalWrite}) })
	c.mw = must1(c, func() (ib.MW, error) { return c.pd.AllocMW(ib.MWType1) })
	gids := must1(c, func() ([]ib.GIDEntry, error) { return c.dev.GIDs(1) })
	here := ib.AHAttr{DGID: gids[0].GID, Port: 1}
	c.ah = must1(c, func() (ib.AH, error) { return c.pd.CreateAH(here) })
	c.must(ib.ModifyTo(c.qp, ib.QPAttr{PathMTU: ib.MTU1024, DestQPN: c.qp.Num(), Timeout: 19, RetryCnt: 7, RNRRetry: 7,
		AH: here, Port: 1}, ib.StateInit, ib.StateRTR, ib.StateRTS))
	c.must(ib.ModifyTo(c.ud, ib.QPAttr{Port: 1, QKey: 5}, ib.StateInit))
	for i := range c.cms {
		c.cms[i] = must1(c, c.dev.OpenCM)
	}
	c.id = must1(c, func() (ib.CMID, error) { return c.cms[0].CreateID(ib.CMIDInit{Type: ib.UD}) })
	c.must(c.id.Bind(netip.AddrPortFrom(gids[0].GID.Addr(), 0)))
	c.alone = maps.Clone(c.usage())
	return c
}

func (c *changed) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func must1[T any](c *changed, f func() (T, error)) T {
	c.t.Helper()
	v, err := f()
	c.must(err)
	return v
}

func (c *changed) newSRQ() (ib.SRQ, error) {
	return c.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 8, MaxSGE: 1}})
}

func (c *changed) newQP(typ ib.QPType, s ib.SRQ) (ib.QP, error) {
	init := ib.QPInit{Type: typ, SendCQ: c.cq, RecvCQ: c.cq, SRQ: s, Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}}
	if s == nil {
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 4, 1
	}
	return c.pd.CreateQP(init)
}

// works sends a message through all of the client's rings, and asks for the state that both sides keep.
func (c *changed) works() {
	c.t.Helper()
	attr := must1(c, c.ud.Query)
	if have := c.ud.(*queuePair).front.State(); have != attr.State {
		c.t.Errorf("the client takes its QP to be in %v, want %v as in the daemon", have, attr.State)
	}
	n := ring.RecvSize(must1(c, c.srq.Query).MaxWR, 1)
	if have := len(c.srq.(*srq).pages.buf); have != n {
		c.t.Errorf("the client's ring of the SRQ has %d bytes, want %d as the daemon's", have, n)
	}
	sge := []ib.SGE{c.mr.SGE(0, 64)}
	_, err := c.srq.PostRecv([]ib.RecvWR{{ID: 1, SGL: sge}})
	c.must(err)
	_, err = c.qp.PostSend([]ib.SendWR{{ID: 2, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: sge}})
	c.must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for range 2 {
		wc, err := ib.WaitOne(ctx, c.cq)
		c.must(err)
		c.must(wc.Err())
	}
	_ = must1(c, c.id.Query)
}

// change is something that a client changes at the daemon.
type change struct {
	name string
	// prepare makes what the change needs, and returns the change.
	prepare func(c *changed) func() error
	opens   bool // the change makes another connection
	ends    bool // the change ends an object: it may have been made even if it returns an error
}

// makes is a row that makes an object.
func makes[T any](name string, f func(c *changed) (T, error)) change {
	return does(name, func(c *changed) error {
		_, err := f(c)
		return err
	})
}

// does is a row that needs nothing else than what there is.
func does(name string, f func(c *changed) error) change {
	return change{name: name, prepare: func(c *changed) func() error { return func() error { return f(c) } }}
}

// closes is a row that closes an object which nothing uses.
func closes[T interface{ Close() error }](name string, f func(c *changed) (T, error)) change {
	return change{name: "close " + name, ends: true, prepare: func(c *changed) func() error {
		return must1(c, func() (T, error) { return f(c) }).Close
	}}
}

var changes = []change{
	{name: "open device", opens: true, prepare: func(c *changed) func() error {
		r, conn := newRelay(c.t, c.d)
		c.relay = r
		require.Until(c.t, "the daemon accepts the connection", func() bool { return c.usage()["connections"] == 2 })
		return func() (err error) {
			c.second, err = New(context.Background(), conn, "")
			return err
		}
	}},
	makes("allocate PD", func(c *changed) (ib.PD, error) { return c.dev.AllocPD() }),
	makes("allocate XRC domain", func(c *changed) (ib.XRCD, error) { return c.dev.AllocXRCD() }),
	makes("create channel", (*changed).newChannel),
	makes("create CQ", newCQ),
	makes("create CQ on a channel", func(c *changed) (ib.CQ, error) {
		return c.dev.CreateCQ(ib.CQInit{Entries: 8, Channel: c.ch})
	}),
	does("make a CQ longer", func(c *changed) error { return c.cq.Resize(10_000) }),
	does("make a CQ shorter", func(c *changed) error { return c.cq.Resize(4) }),
	makes("create SRQ", (*changed).newSRQ),
	makes("create XRC SRQ", newXRCSRQ),
	does("make an SRQ longer", func(c *changed) error { return c.srq.Modify(ib.SRQAttr{MaxWR: 1000}, ib.SRQMaxWR) }),
	does("arm an SRQ's limit", func(c *changed) error { return c.srq.Modify(ib.SRQAttr{Limit: 1}, ib.SRQLimit) }),
	makes("create QP", newRC),
	makes("create QP without rings", newTarget),
	does("modify QP", func(c *changed) error { return c.ud.Modify(ib.QPAttr{State: ib.StateRTR}, ib.AttrState) }),
	does("reset QP", func(c *changed) error { return c.ud.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState) }),
	makes("register memory of Alloc", newMR),
	{name: "share memory and register it", prepare: func(c *changed) func() error {
		buf := must1(c, func() ([]byte, error) { return Alloc(4096) })
		return func() error {
			_, err := c.pd.RegMR(ib.MRInit{Buf: buf})
			if err != nil { // what is shared stays so until then
				c.must(Free(buf))
			}
			return err
		}
	}},
	makes("register other memory", func(c *changed) (ib.MR, error) {
		return c.pd.RegMR(ib.MRInit{Buf: make([]byte, 4096)})
	}),
	does("re-register memory", func(c *changed) error {
		return c.mr.Rereg(ib.ReregTranslation, nil, ib.MRInit{Buf: c.other, Access: ib.LocalWrite})
	}),
	does("re-register as other memory", func(c *changed) error {
		return c.mr.Rereg(ib.ReregTranslation, nil, ib.MRInit{Buf: make([]byte, 4096), Access: ib.LocalWrite})
	}),
	makes("allocate MW", newMW),
	makes("create AH", newAH),
	does("modify AH", func(c *changed) error {
		attr, err := c.ah.Query()
		c.must(err)
		attr.TrafficClass = 4
		return c.ah.Modify(attr)
	}),
	does("attach to a group", func(c *changed) error { return c.ud.AttachMulticast(ib.GIDFromAddr(group)) }),
	{name: "detach from a group", ends: true, prepare: func(c *changed) func() error {
		c.must(c.ud.AttachMulticast(ib.GIDFromAddr(group)))
		return func() error { return c.ud.DetachMulticast(ib.GIDFromAddr(group)) }
	}},

	makes("open event channel", (*changed).newCM),
	makes("create ID", newID),
	{name: "bind ID", prepare: func(c *changed) func() error {
		id := must1(c, func() (ib.CMID, error) { return newID(c) })
		return func() error { return id.Bind(netip.MustParseAddrPort("0.0.0.0:0")) }
	}},
	{name: "listen", prepare: func(c *changed) func() error {
		id := must1(c, func() (ib.CMID, error) { return newID(c) })
		return func() error { return id.Listen(0) }
	}},
	does("resolve address", func(c *changed) error {
		return c.id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7471"), 0)
	}),
	does("set option", func(c *changed) error { return c.id.SetOption(ib.CMOptionTOS, 4) }),
	does("join", func(c *changed) error { return c.id.JoinMulticast(group) }),
	{name: "leave", ends: true, prepare: func(c *changed) func() error {
		c.must(c.id.JoinMulticast(group))
		return func() error { return c.id.LeaveMulticast(group) }
	}},
	does("migrate ID", func(c *changed) error { return c.id.Migrate(c.cms[1]) }),
	does("take an event", func(c *changed) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := c.cms[0].NextEvent(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}),

	closes("PD", func(c *changed) (ib.PD, error) { return c.dev.AllocPD() }),
	closes("XRC domain", func(c *changed) (ib.XRCD, error) { return c.dev.AllocXRCD() }),
	closes("channel", func(c *changed) (ib.Channel, error) { return c.dev.CreateChannel() }),
	closes("CQ", newCQ),
	closes("SRQ", (*changed).newSRQ),
	closes("XRC SRQ", newXRCSRQ),
	closes("QP", newRC),
	closes("QP without rings", newTarget),
	closes("memory region", newMR),
	closes("MW", newMW),
	closes("AH", newAH),
	closes("event channel with an ID", func(c *changed) (ib.CM, error) {
		cm := must1(c, c.dev.OpenCM)
		_, err := cm.CreateID(ib.CMIDInit{})
		return cm, err
	}),
	closes("ID", newID),
}

func (c *changed) newChannel() (ib.Channel, error) { return c.dev.CreateChannel() }

func (c *changed) newCM() (ib.CM, error) { return c.dev.OpenCM() }

func newCQ(c *changed) (ib.CQ, error) { return c.dev.CreateCQ(ib.CQInit{Entries: 8}) }

func newRC(c *changed) (ib.QP, error) { return c.newQP(ib.RC, nil) }

func newTarget(c *changed) (ib.QP, error) {
	return c.pd.CreateQP(ib.QPInit{Type: ib.XRCTGT, XRCD: c.x})
}

func newXRCSRQ(c *changed) (ib.SRQ, error) {
	return c.pd.CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, XRCD: c.x, CQ: c.cq, SRQAttr: ib.SRQAttr{MaxWR: 8, MaxSGE: 1}})
}

func newMR(c *changed) (ib.MR, error) { return c.pd.RegMR(ib.MRInit{Buf: c.buf[:64]}) }

func newMW(c *changed) (ib.MW, error) { return c.pd.AllocMW(ib.MWType1) }

func newAH(c *changed) (ib.AH, error) {
	attr, err := c.ah.Query()
	c.must(err)
	return c.pd.CreateAH(attr)
}

func newID(c *changed) (ib.CMID, error) { return c.cms[0].CreateID(ib.CMIDInit{}) }
