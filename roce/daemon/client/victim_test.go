package client

import (
	"context"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
)

// victim is a client with the objects that the daemon has given it.
type victim struct {
	dev  *Device
	pd   ib.PD
	xrcd ib.XRCD
	ch   ib.Channel
	cq   ib.CQ
	buf  []byte
	mr   ib.MR
	mw   ib.MW
	ah   ib.AH
	srq  ib.SRQ
	qp   ib.QP
	cm   ib.CM
	id   ib.CMID
}

// set stores a new object if the verb has succeeded.
func set[T any](to *T, v T, err error) {
	if err == nil {
		*to = v
	}
}

// over is a context that does not wait.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// verbs are what the client does. The objects that a verb needs were made before, or it is left out.
var verbs = []struct {
	needs func(v *victim) bool
	call  func(t *testing.T, v *victim, d *hostile, at, value byte)
}{
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		pd, err := v.dev.AllocPD()
		set(&v.pd, pd, err)
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		ch, err := v.dev.CreateChannel()
		set(&v.ch, ch, err)
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		cq, err := v.dev.CreateCQ(ib.CQInit{Entries: 4, Channel: v.ch})
		set(&v.cq, cq, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, at, value byte) {
		mr, err := v.pd.RegMR(ib.MRInit{Buf: v.buf})
		set(&v.mr, mr, err)
	}},
	{hasCQ, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		qp, err := v.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: v.cq, RecvCQ: v.cq, SRQ: v.srq, Cap: goodCap})
		set(&v.qp, qp, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		srq, err := v.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 2}})
		set(&v.srq, srq, err)
	}},
	{hasQP, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		_ = v.qp.Modify(ib.QPAttr{State: ib.QPState(at % 8)}, ib.AttrState)
	}},
	{hasQP, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wrs := []ib.SendWR{{Opcode: ib.WRSend, SGL: make([]ib.SGE, at%4)},
			{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: make([]byte, value)}}
		if n, err := v.qp.PostSend(wrs); n < 0 || n > len(wrs) || n < len(wrs) && err == nil {
			t.Errorf("%d requests were posted: %v; want %d, or an error", n, err, len(wrs))
		}
	}},
	{hasQP, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wrs := []ib.RecvWR{{SGL: make([]ib.SGE, at%4)}, {}, {}, {}, {}}
		if n, err := v.qp.PostRecv(wrs); n < 0 || n > len(wrs) || n < len(wrs) && err == nil {
			t.Errorf("%d receives were posted: %v; want %d, or an error", n, err, len(wrs))
		}
	}},
	{hasSRQ, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wrs := []ib.RecvWR{{SGL: make([]ib.SGE, at%4)}, {}, {}, {}, {}}
		if n, err := v.srq.PostRecv(wrs); n < 0 || n > len(wrs) || n < len(wrs) && err == nil {
			t.Errorf("%d receives were posted to the SRQ: %v; want %d, or an error", n, err, len(wrs))
		}
	}},
	{hasCQ, func(t *testing.T, v *victim, _ *hostile, at, value byte) {
		wcs := make([]ib.WC, 1+at%8)
		if n, _ := v.cq.Poll(wcs); n < 0 || n > len(wcs) {
			t.Errorf("%d completions, want 0 to %d", n, len(wcs))
		}
		_ = v.cq.Arm(value%2 == 0)
		_ = v.cq.Entries()
	}},
	{nil, func(_ *testing.T, _ *victim, d *hostile, at, value byte) { d.scribble(int(at), int(value)) }},
	{nil, func(_ *testing.T, v *victim, d *hostile, at, value byte) {
		d.tell(at, value)
		_, _ = v.dev.NextEvent(over)
	}},
	{hasChannel, func(_ *testing.T, v *victim, d *hostile, at, value byte) {
		d.tell(at, value)
		_, _ = v.ch.Wait(over)
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		cm, err := v.dev.OpenCM()
		set(&v.cm, cm, err)
	}},
	{hasCM, func(_ *testing.T, v *victim, d *hostile, at, value byte) {
		d.tell(at, value)
		if ev, err := v.cm.NextEvent(over); err == nil && ev.ID != nil {
			v.id = ev.ID
		}
	}},
	{hasCM, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		id, err := v.cm.CreateID(ib.CMIDInit{Space: ib.PortSpaceTCP})
		set(&v.id, id, err)
	}},
	{hasID, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.id.Query() }},
	{hasID, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) {
		_, _, _ = v.id.InitQPAttr(ib.QPState(at))
	}},
	{hasID, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) {
		_ = v.id.Bind(netip.AddrPortFrom(netip.IPv6Loopback(), uint16(at)))
	}},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.QueryPort(1) }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.GIDs(1) }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.PKey(1, 0) }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.dev.Clock() }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		x, err := v.dev.AllocXRCD()
		set(&v.xrcd, x, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		mw, err := v.pd.AllocMW(ib.MWType1)
		set(&v.mw, mw, err)
	}},
	{hasPD, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		ah, err := v.pd.CreateAH(ib.AHAttr{})
		set(&v.ah, ah, err)
	}},
	{func(v *victim) bool { return v.mr != nil }, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		_ = v.mr.Rereg(ib.ReregAccess, nil, ib.MRInit{Buf: v.buf})
	}},
	{func(v *victim) bool { return v.mw != nil && v.qp != nil }, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		_ = v.mw.Bind(v.qp, 1, 0, ib.MWBind{})
	}},
	{func(v *victim) bool { return v.ah != nil }, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) {
		_ = v.ah.Modify(ib.AHAttr{})
	}},
	{hasCQ, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _ = v.cq.Resize(8) }},
	{hasSRQ, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) {
		_ = v.srq.Modify(ib.SRQAttr{MaxWR: 8}, ib.SRQAttrMask(at))
	}},
	{hasSRQ, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.srq.Query() }},
	{hasQP, func(_ *testing.T, v *victim, _ *hostile, _, _ byte) { _, _ = v.qp.Query() }},
	{nil, func(_ *testing.T, v *victim, _ *hostile, at, _ byte) { v.close(int(at)) }},
}

// goodCap are the queues that goodSend and goodRecv are made for.
var goodCap = ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64}

func hasPD(v *victim) bool      { return v.pd != nil }
func hasCQ(v *victim) bool      { return v.cq != nil && v.pd != nil }
func hasQP(v *victim) bool      { return v.qp != nil }
func hasSRQ(v *victim) bool     { return v.srq != nil }
func hasChannel(v *victim) bool { return v.ch != nil }
func hasCM(v *victim) bool      { return v.cm != nil }
func hasID(v *victim) bool      { return v.id != nil }

// close closes one object.
func (v *victim) close(which int) {
	switch all := []interface{ Close() error }{v.pd, v.xrcd, v.ch, v.cq, v.mr, v.mw, v.ah, v.srq, v.qp, v.cm,
		v.id}; all[which%len(all)] {
	case nil:
	default:
		_ = all[which%len(all)].Close()
	}
}
