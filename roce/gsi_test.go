package roce_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

const (
	gsiQKey  = 0x8001_0000
	gsiSlots = 32
	gsiSlot  = ib.GRHLen + wire.MADLen
	allBits  = ^uint64(0)
)

var gsiCap = ib.QPCap{MaxSendWR: gsiSlots, MaxRecvWR: gsiSlots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: wire.MADLen}

// manager is a general services QP with receives posted, as a connection manager
// has it.
type manager struct {
	ib.ServiceQP
	w   *world
	pd  ib.PD
	cq  ib.CQ
	mr  ib.MR
	buf []byte
}

// newManager makes one in RTS.
func (w *world) newManager(h *host) *manager {
	w.t.Helper()
	m := &manager{w: w, buf: make([]byte, gsiSlots*gsiSlot)}
	var err error
	m.pd, err = h.dev.AllocPD()
	must(w.t, err)
	m.cq, err = h.dev.CreateCQ(ib.CQInit{Entries: 4 * gsiSlots})
	must(w.t, err)
	m.mr, err = m.pd.RegMR(ib.MRInit{Buf: m.buf, Access: ib.LocalWrite})
	must(w.t, err)
	q, err := m.pd.CreateQP(ib.QPInit{Type: ib.GSI, SendCQ: m.cq, RecvCQ: m.cq, Cap: gsiCap})
	must(w.t, err)
	m.ServiceQP = q.(ib.ServiceQP)
	w.gsiUp(m)
	for slot := range uint64(gsiSlots) {
		m.receive(slot)
	}
	return m
}

func (w *world) gsiUp(q ib.QP) {
	w.t.Helper()
	w.modify(q, ib.QPAttr{State: ib.Init, QKey: gsiQKey}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrQKey)
	w.modify(q, ib.QPAttr{State: ib.RTR}, ib.AttrState)
	w.modify(q, ib.QPAttr{State: ib.RTS}, ib.AttrState|ib.AttrSQPSN)
}

func (m *manager) receive(slot uint64) {
	sge := ib.SGE{Addr: m.mr.Addr() + slot*gsiSlot, Length: gsiSlot, LKey: m.mr.LKey()}
	_, err := m.PostRecv([]ib.RecvWR{{ID: slot, SGL: []ib.SGE{sge}}})
	must(m.w.t, err)
}

// putter is a message of package wire.
type putter interface{ Put(*[wire.MADLen]byte) }

// ids is a message that has nothing but IDs: LAP, APR.
type ids = wire.RTU

// madOf encodes a message.
func madOf(attr wire.CMAttr, m putter) []byte {
	var mad [wire.MADLen]byte
	m.Put(&mad)
	h := wire.MADHeader{BaseVersion: wire.MADBaseVersion, Class: wire.MADClassCM, ClassVersion: wire.MADClassVersionCM, Method: wire.MADMethodSend, Attr: attr}
	h.Put(&mad)
	return mad[:]
}

// say sends a message to QP 1 of a host, and lets it arrive.
func (m *manager) say(to ib.GID, attr wire.CMAttr, msg putter) {
	m.w.t.Helper()
	m.sendRaw(to, madOf(attr, msg))
}

func (m *manager) sendRaw(to ib.GID, mad []byte) {
	m.w.t.Helper()
	ah, err := m.pd.CreateAH(ib.AHAttr{DGID: to})
	must(m.w.t, err)
	_, err = m.PostSend([]ib.SendWR{{ID: gsiSlots, Opcode: ib.WRSend, Flags: ib.SendInline, Inline: mad, AH: ah.Num(), RemoteQPN: ib.QPNGSI, RemoteQKey: gsiQKey}})
	must(m.w.t, err)
	m.w.settle()
	must(m.w.t, ah.Close())
}

// heard returns what has arrived: the messages with the first two words of each.
func (m *manager) heard() (all []string) {
	m.w.t.Helper()
	m.w.settle()
	var wcs [4 * gsiSlots]ib.WC
	n, err := m.cq.Poll(wcs[:])
	must(m.w.t, err)
	for _, wc := range wcs[:n] {
		if wc.Opcode != ib.WCRecv {
			continue
		}
		if wc.SrcQP != ib.QPNGSI || wc.QPN != ib.QPNGSI || wc.ByteLen != gsiSlot {
			m.w.t.Errorf("%+v", wc)
		}
		mad := [wire.MADLen]byte(m.buf[wc.ID*gsiSlot+ib.GRHLen:])
		var h wire.MADHeader
		var first ids
		h.Decode(&mad)
		first.Decode(&mad)
		all = append(all, fmt.Sprintf("%v %d %d", h.Attr, first.LocalID, first.RemoteID))
		m.receive(wc.ID)
	}
	return all
}

// wantHeard fails unless this has arrived since the last time.
func (m *manager) wantHeard(who string, want ...string) {
	m.w.t.Helper()
	if diff := cmp.Diff(want, m.heard()); diff != "" {
		m.w.t.Errorf("%s (-want +got):\n%s", who, diff)
	}
}

// TestSeveralGSI: QPs 1 have lives of their own, up to the limit.
func TestSeveralGSI(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	p, q := w.newManager(w.a), w.newManager(w.a)
	if p.Num() != ib.QPNGSI || q.Num() != ib.QPNGSI {
		t.Errorf("QP numbers %d, %d", p.Num(), q.Num())
	}
	w.modify(p, ib.QPAttr{State: ib.Err}, ib.AttrState)
	for m, want := range map[*manager]ib.QPState{p: ib.Err, q: ib.RTS} {
		if attr, err := m.Query(); err != nil || attr.State != want {
			t.Errorf("state %v, %v; want %v", attr.State, err, want)
		}
	}
	must(t, p.Close())
	if _, err := p.Query(); !errors.Is(err, ib.ErrClosed) {
		t.Errorf("Query of a closed one: %v", err)
	}
	b := w.newManager(w.b)
	b.say(gidA, wire.AttrDREQ, &wire.DREQ{LocalID: 1, RemoteID: 2})
	q.wantHeard("the one that is left", "DREQ 1 2")

	var last ib.QP
	for i := 1; ; i++ {
		one, err := w.a.pd.CreateQP(ib.QPInit{Type: ib.GSI, SendCQ: w.a.cq, RecvCQ: w.a.cq})
		if err != nil {
			if i != 1024 || !errors.Is(err, ib.ErrLimit) {
				t.Errorf("QP 1 number %d: %v", i+1, err)
			}
			break
		}
		last = one
	}
	must(t, last.Close())
	w.newQP(w.a, ib.QPInit{Type: ib.GSI})
}

// TestRouteRequests: requests go to who serves their ID; copies go where the first
// went; what nobody serves goes to the first QP that receives.
func TestRouteRequests(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	idle := w.newManager(w.a) // the oldest, but it does not receive
	w.modify(idle, ib.QPAttr{State: ib.Reset}, ib.AttrState)
	p, q, b := w.newManager(w.a), w.newManager(w.a), w.newManager(w.b)
	must(t, p.Serve(0x1060001, allBits, ib.GID{}))
	must(t, q.Serve(0x1110000, space, ib.GID{}))
	must(t, q.Serve(0x1060002, allBits, ib.GID{}))
	req := func(id uint32, service uint64) {
		b.say(gidA, wire.AttrREQ, &wire.REQ{LocalID: id, ServiceID: service})
	}
	sidr := func(id uint32, service uint64) {
		b.say(gidA, wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: id, ServiceID: service})
	}
	req(1, 0x1060001)
	req(2, 0x1060002)
	sidr(3, 0x1110007)
	req(4, 0x1060003) // nobody's
	p.wantHeard("p", "REQ 1 0", "REQ 4 0")
	q.wantHeard("q", "REQ 2 0", "SIDR_REQ 3 0")

	must(t, q.Unserve(0x1060002, allBits, ib.GID{}))
	must(t, p.Serve(0x1060002, allBits, ib.GID{}))
	req(2, 0x1060002) // a copy
	req(5, 0x1060002) // another
	req(1, 0x1110001) // an ID that is used again
	p.wantHeard("p", "REQ 5 0")
	q.wantHeard("q", "REQ 2 0", "REQ 1 0")
	b.say(gidA, wire.AttrREJ, &wire.REJ{LocalID: 2, Reason: wire.RejectTimeout}) // b gives up
	q.wantHeard("q", "REJ 2 0")

	must(t, q.Close())
	req(2, 0x1060002)
	sidr(6, 0x1110007)
	p.wantHeard("p, alone", "REQ 2 0", "SIDR_REQ 6 0")
	b.sendRaw(gidA, make([]byte, wire.MADLen)) // no message of a connection manager
	p.wantHeard("p", "CMAttr(0) 0 0")
	idle.wantHeard("the one that does not receive")
	if st := w.a.dev.Stats(); st.GSIUnclaimed != 2 || st.DropSpoofedID != 0 {
		t.Errorf("%d unclaimed, %d spoofed", st.GSIUnclaimed, st.DropSpoofedID)
	}
}

// TestRouteAnswers: each message finds the QP whose ID it names; IDs are learned by
// all messages that use one, also before there is a second QP.
func TestRouteAnswers(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	first, b := w.newManager(w.a), w.newManager(w.b)
	first.say(gidB, wire.AttrREQ, &wire.REQ{LocalID: 1})
	p, q := w.newManager(w.a), w.newManager(w.a)
	p.say(gidB, wire.AttrREQ, &wire.REQ{LocalID: 10})
	q.say(gidB, wire.AttrREP, &wire.REP{LocalID: 20, RemoteID: 120})
	q.say(gidB, wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: 21})
	q.say(gidB, wire.AttrMRA, &wire.MRA{LocalID: 22, RemoteID: 122})
	p.say(gidB, wire.AttrDREQ, &wire.DREQ{LocalID: 11, RemoteID: 111})
	b.heard()
	all := func(m *manager, who string, local, remote uint32) {
		t.Helper()
		var want []string
		for _, c := range []struct {
			attr wire.CMAttr
			m    putter
		}{
			{wire.AttrMRA, &wire.MRA{LocalID: remote, RemoteID: local}},
			{wire.AttrREP, &wire.REP{LocalID: remote, RemoteID: local}},
			{wire.AttrRTU, &wire.RTU{LocalID: remote, RemoteID: local}},
			{wire.AttrLAP, &ids{LocalID: remote, RemoteID: local}},
			{wire.AttrAPR, &ids{LocalID: remote, RemoteID: local}},
			{wire.AttrDREQ, &wire.DREQ{LocalID: remote, RemoteID: local}},
			{wire.AttrDREP, &wire.DREP{LocalID: remote, RemoteID: local}},
			{wire.AttrREJ, &wire.REJ{LocalID: remote, RemoteID: local}},
		} {
			b.say(gidA, c.attr, c.m)
			want = append(want, fmt.Sprintf("%v %d %d", c.attr, remote, local))
		}
		m.wantHeard(who, want...)
	}
	all(first, "an ID from before there were others", 1, 101)
	all(p, "REQ", 10, 110)
	all(q, "REP", 20, 120)
	all(q, "MRA", 22, 122)
	all(p, "DREQ", 11, 111)
	all(first, "nobody's", 99, 199)
	b.say(gidA, wire.AttrSIDRREP, &wire.SIDRREP{RequestID: 21})
	q.wantHeard("SIDR_REP", "SIDR_REP 21 0")
	for name, m := range map[string]*manager{"first": first, "p": p, "q": q} {
		m.wantHeard(name)
	}
	if st := w.a.dev.Stats(); st.GSIUnclaimed != 8 || st.DropSpoofedID != 0 {
		t.Errorf("%d unclaimed, %d spoofed", st.GSIUnclaimed, st.DropSpoofedID)
	}
}

// careful is a link that takes no runs without frames.
type careful struct {
	link.Link
	t testing.TB
}

func (l careful) Send(now ib.Instant, runs []link.Run) (int, error) {
	for _, r := range runs {
		if len(r.Buf) == 0 {
			l.t.Error("a run without frames")
		}
	}
	return l.Link.Send(now, runs)
}

// TestSpoofedIDs: no QP speaks with what is another's. Nothing of it leaves, and the
// other goes on.
func TestSpoofedIDs(t *testing.T) {
	w := newWorld(t, 1, 64, stack{above: func(l link.Link) link.Link { return careful{l, t} }, below: same})
	good, evil, b := w.newManager(w.a), w.newManager(w.a), w.newManager(w.b)
	must(t, good.Serve(7, allBits, ib.GID{}))
	good.say(gidB, wire.AttrREQ, &wire.REQ{LocalID: 10})
	good.say(gidB, wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: 11})
	b.say(gidA, wire.AttrREQ, &wire.REQ{LocalID: 120, ServiceID: 7})
	b.say(gidA, wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: 121, ServiceID: 7})
	good.heard()
	b.heard()
	spoofs := []struct {
		name string
		attr wire.CMAttr
		m    putter
	}{
		{"the same ID by chance", wire.AttrREQ, &wire.REQ{LocalID: 10}},
		{"of a datagram service", wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: 10}},
		{"a Request ID", wire.AttrREQ, &wire.REQ{LocalID: 11}},
		{"confirming", wire.AttrRTU, &wire.RTU{LocalID: 10, RemoteID: 110}},
		{"giving up", wire.AttrREJ, &wire.REJ{LocalID: 10, RemoteID: 110, Message: wire.MessageOther}},
		{"disconnecting", wire.AttrDREQ, &wire.DREQ{LocalID: 10, RemoteID: 110}},
		{"agreeing to it", wire.AttrDREP, &wire.DREP{LocalID: 10, RemoteID: 110}},
		{"accepting another's request", wire.AttrREP, &wire.REP{LocalID: 30, RemoteID: 120}},
		{"rejecting it", wire.AttrREJ, &wire.REJ{RemoteID: 120, Message: wire.MessageREQ}},
		{"delaying it", wire.AttrMRA, &wire.MRA{LocalID: 30, RemoteID: 120}},
		{"answering for its service", wire.AttrSIDRREP, &wire.SIDRREP{RequestID: 121}},
	}
	for _, c := range spoofs {
		evil.say(gidB, c.attr, c.m)
		b.wantHeard(c.name)
	}
	if n := w.a.dev.Stats().DropSpoofedID; n != uint64(len(spoofs)) {
		t.Errorf("%d of %d counted", n, len(spoofs))
	}
	evil.say(gidA, wire.AttrREQ, &wire.REQ{LocalID: 10, ServiceID: 7}) // toward another peer: this device
	good.wantHeard("good", "REQ 10 0")
	good.say(gidB, wire.AttrREP, &wire.REP{LocalID: 20, RemoteID: 120})
	good.say(gidB, wire.AttrSIDRREP, &wire.SIDRREP{RequestID: 121})
	b.wantHeard("what is said rightly", "REP 20 120", "SIDR_REP 121 0")
	b.say(gidA, wire.AttrREP, &wire.REP{LocalID: 110, RemoteID: 10})
	good.wantHeard("good", "REP 110 10")
	if wcs := evil.heard(); wcs != nil {
		t.Errorf("what is not its own: %v", wcs)
	}
}

// TestIDsRest: when a connection is over its ID rests for ten seconds, and is free.
func TestIDsRest(t *testing.T) {
	const rest = ib.Instant(10e9)
	for _, c := range []struct {
		name string
		end  func(p, b *manager)
		over bool
	}{
		{"DREP comes", func(p, b *manager) { b.say(gidA, wire.AttrDREP, &wire.DREP{LocalID: 110, RemoteID: 10}) }, true},
		{"DREP leaves", func(p, b *manager) { p.say(gidB, wire.AttrDREP, &wire.DREP{LocalID: 10, RemoteID: 110}) }, true},
		{"REJ comes", func(p, b *manager) { b.say(gidA, wire.AttrREJ, &wire.REJ{LocalID: 110, RemoteID: 10}) }, true},
		{"REJ leaves", func(p, b *manager) { p.say(gidB, wire.AttrREJ, &wire.REJ{LocalID: 10, RemoteID: 110}) }, true},
		{"REJ of another connection", func(p, b *manager) { b.say(gidA, wire.AttrREJ, &wire.REJ{LocalID: 111, RemoteID: 10}) }, false},
		{"DREQ without an answer", func(p, b *manager) { p.say(gidB, wire.AttrDREQ, &wire.DREQ{LocalID: 10, RemoteID: 110}) }, false},
	} {
		w := newWorld(t, 1, 64, plain)
		p, q, b := w.newManager(w.a), w.newManager(w.a), w.newManager(w.b)
		p.say(gidB, wire.AttrREQ, &wire.REQ{LocalID: 10})
		b.say(gidA, wire.AttrREP, &wire.REP{LocalID: 110, RemoteID: 10})
		p.say(gidB, wire.AttrRTU, &wire.RTU{LocalID: 10, RemoteID: 110})
		c.end(p, b)
		b.heard()
		takes := func() bool {
			q.say(gidB, wire.AttrREQ, &wire.REQ{LocalID: 10})
			return len(b.heard()) == 1
		}
		w.now += rest - 1
		if takes() {
			t.Errorf("%s: free at once", c.name)
		}
		w.now++
		if takes() != c.over {
			t.Errorf("%s: free after %d ns: %v", c.name, rest, !c.over)
		}
		must(t, p.Close())
		if !takes() {
			t.Errorf("%s: not free when its QP is closed", c.name)
		}
	}
}

// tenant is an application whose rings the test fills.
type tenant struct {
	rings [][]byte
	sends []*roce.QP
}

func (a *tenant) Alloc(n int) ([]byte, error) {
	a.rings = append(a.rings, ring.Alloc(n))
	return a.rings[len(a.rings)-1], nil
}
func (*tenant) Notify(*roce.CQ) {}
func (*tenant) Event(ib.Event)  {}

// Bells that ring all the time.
func (a *tenant) Take(ring func(*roce.QP)) {
	for _, q := range a.sends {
		ring(q)
	}
	a.sends = nil
}
func (*tenant) Sleep() bool   { return false }
func (*tenant) Awake()        {}
func (*tenant) GiveWay() bool { return false }

// watcher is a link that would look at a file descriptor.
type watcher struct{ link.Link }

func (watcher) Watch(int) error { return nil }

// TestTenantsToQP1: a tenant reaches QP 1 from its general services QP only, and names
// no QP of another tenant's, nor an address of another host's as its own.
func TestTenantsToQP1(t *testing.T) {
	w := newWorld(t, 1, 64, stack{above: func(l link.Link) link.Link { return watcher{l} }, below: same})
	b := w.newManager(w.b)
	victim := w.newQP(w.a, ib.QPInit{Type: ib.RC})
	a := &tenant{}
	must(t, w.a.dev.SetBells(0, a, 0))
	pd, err := w.a.dev.AllocPDFor(a, nil)
	must(t, err)
	cq, err := w.a.dev.CreateCQFor(a, 64)
	must(t, err)
	ah, err := pd.CreateAH(ib.AHAttr{DGID: gidB})
	must(t, err)
	send := func(typ ib.QPType, attr wire.CMAttr, m putter) {
		t.Helper()
		q, err := pd.CreateQP(ib.QPInit{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: gsiCap})
		must(t, err)
		sq, err := ring.OpenSend(a.rings[len(a.rings)-1][:ring.SendSize(gsiCap.MaxSendWR, gsiCap.MaxSendSGE, gsiCap.MaxInline)])
		must(t, err)
		w.ready(q, typ)
		must(t, sq.Push(&ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: madOf(attr, m), AH: ah.Num(), RemoteQPN: ib.QPNGSI, RemoteQKey: gsiQKey}))
		sq.Publish()
		a.sends = append(a.sends, q.(*roce.QP))
		w.settle()
		must(t, q.Close())
	}
	own, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq})
	must(t, err)
	here := wire.CMPath{LocalGID: gidA}
	send(ib.GSI, wire.AttrREQ, &wire.REQ{LocalID: 1, QPN: own.Num(), Primary: here})
	b.wantHeard("its own QP", "REQ 1 0")
	send(ib.UD, wire.AttrDREQ, &wire.DREQ{LocalID: 2})
	b.wantHeard("from a UD QP")
	send(ib.GSI, wire.AttrREQ, &wire.REQ{LocalID: 3, QPN: victim.Num(), Primary: here})
	b.wantHeard("another's QP in a REQ")
	send(ib.GSI, wire.AttrREP, &wire.REP{LocalID: 4, QPN: victim.Num()})
	b.wantHeard("another's QP in a REP")
	send(ib.GSI, wire.AttrREQ, &wire.REQ{LocalID: 5, Primary: wire.CMPath{LocalGID: gid(9)}})
	b.wantHeard("another host's path")
	const port = 0x1060000 + 7471
	for _, c := range []struct {
		name    string
		service uint64
		private []byte
		leaves  bool
	}{
		{"its address", port, headerOf(gidA), true},
		{"another host's", port, headerOf(gid(9)), false},
		{"of IP version 6", port, headerOf(ib.GIDFromAddr(netip.MustParseAddr("2001:db8::9"))), false},
		{"no header", port, nil, false},
		{"an IP protocol that has no name", 0x1840000 + 7471, headerOf(gid(9)), false},
		{"IPoIB", 0x20007, headerOf(gid(9)), false},
		{"no service of IP", 0x2_0106_1D2F, headerOf(gid(9)), true},
	} {
		var wantREQ, wantSIDR []string
		if c.leaves {
			wantREQ, wantSIDR = []string{"REQ 5 0"}, []string{"SIDR_REQ 6 0"}
		}
		send(ib.GSI, wire.AttrREQ, &wire.REQ{LocalID: 5, ServiceID: c.service, PrivateData: c.private, Primary: here})
		b.wantHeard(c.name, wantREQ...)
		send(ib.GSI, wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: 6, ServiceID: c.service, PrivateData: c.private})
		b.wantHeard(c.name, wantSIDR...)
	}
	if n := w.a.dev.Stats().DropSpoofedID; n != 4+5*2 {
		t.Errorf("%d counted, want 14", n)
	}
}

// ready brings a datagram QP to RTS.
func (w *world) ready(q ib.QP, typ ib.QPType) {
	mask := ib.AttrState | ib.AttrPKeyIndex | ib.AttrQKey
	if typ == ib.UD {
		mask |= ib.AttrPort
	}
	w.modify(q, ib.QPAttr{State: ib.Init, Port: 1, QKey: gsiQKey}, mask)
	w.modify(q, ib.QPAttr{State: ib.RTR}, ib.AttrState)
	w.modify(q, ib.QPAttr{State: ib.RTS}, ib.AttrState|ib.AttrSQPSN)
}

// headerOf is private data as rdma_cm begins them, from an address.
func headerOf(src ib.GID) []byte {
	b := make([]byte, wire.CMHeaderLen)
	(&wire.CMHeader{Src: src, Dst: gidB}).Put(b)
	return b
}
