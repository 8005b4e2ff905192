package cm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/wire"
)

const (
	gsiQKey  = 0x8001_0000
	gsiSlots = 128
	gsiSlot  = ib.GRHLen + wire.MADLen
)

// TestModelGSI is TestModel over the general services QPs of software devices, on
// a bad network: messages are datagrams with all their headers. The devices of every
// other seed have a manager more, which was there first and gets what is for nobody.
func TestModelGSI(t *testing.T) {
	established := 0
	runSeeds(t, min(*modelSeeds, 40), func(t *testing.T, seed uint64) {
		w := newModel(t, seed, newGSINetwork(t, seed))
		w.run()
		w.net.(*gsiNetwork).checkFirst()
		established += w.heard[Established]
	})
	t.Logf("%d connections", established)
	if established < *modelSeeds && *modelSeed == 0 {
		t.Error("that is hardly a test")
	}
}

// gsiNetwork carries messages between QPs 1.
type gsiNetwork struct {
	t     *testing.T
	hosts []*gsiHost
	first []*bystander
	dirty bool // something was posted since the devices were stepped
}

// bystander is a manager that has no connections, behind a QP of its own.
type bystander struct {
	*gsiHost
	*Manager
}

type gsiHost struct {
	dev  *roce.Device
	pd   ib.PD
	cq   ib.CQ
	mr   ib.MR
	qp   ib.QP
	buf  []byte
	gids []ib.GIDEntry
	ahs  map[ib.GID]ib.AH
}

func newGSINetwork(t *testing.T, seed uint64) *gsiNetwork {
	rng := rand.New(rand.NewPCG(seed, 3))
	bad := wrap.FaultConfig{MaxDelay: time.Duration(1 + rng.Int64N(int64(300*time.Millisecond)))}
	if rng.IntN(5) != 0 {
		bad.Drop, bad.Duplicate, bad.Reorder, bad.Delay = rng.Float64()*0.3, rng.Float64()*0.2, rng.Float64()*0.2, rng.Float64()*0.5
	}
	n := &gsiNetwork{t: t}
	net := mem.NewNetwork()
	for i := range 3 {
		bad.Seed = seed*8 + uint64(i)
		l := wrap.Fault(wrap.Seal(wrap.Turn(net.Open([]ib.GID{gidOf(i)}, mem.Options{}))), bad)
		dev, err := roce.Open(l, roce.Options{Manual: true, Seed: seed})
		n.check(err)
		t.Cleanup(func() { dev.Close() })
		if seed%2 == 0 {
			n.first = append(n.first, &bystander{n.open(dev), New(Options{GUID: uint64(i) + 1, Seed: seed})})
		}
		h := n.open(dev)
		n.check(h.qp.(ib.ServiceQP).Serve(testService, ^uint64(0), ib.GID{}))
		n.hosts = append(n.hosts, h)
	}
	return n
}

func (n *gsiNetwork) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *gsiNetwork) open(dev *roce.Device) *gsiHost {
	h := &gsiHost{dev: dev, buf: make([]byte, gsiSlots*gsiSlot), ahs: map[ib.GID]ib.AH{}}
	var err error
	h.gids, err = dev.GIDs(1)
	n.check(err)
	h.pd, err = dev.AllocPD()
	n.check(err)
	h.cq, err = dev.CreateCQ(ib.CQInit{Entries: 2 * gsiSlots})
	n.check(err)
	h.mr, err = h.pd.RegMR(ib.MRInit{Buf: h.buf, Access: ib.LocalWrite})
	n.check(err)
	limits := ib.QPCap{MaxSendWR: gsiSlots, MaxRecvWR: gsiSlots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: wire.MADLen}
	h.qp, err = h.pd.CreateQP(ib.QPInit{Type: ib.GSI, SendCQ: h.cq, RecvCQ: h.cq, Cap: limits})
	n.check(err)
	n.check(h.qp.Modify(ib.QPAttr{State: ib.Init, QKey: gsiQKey}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrQKey))
	for slot := range uint64(gsiSlots) {
		n.receive(h, slot)
	}
	n.check(h.qp.Modify(ib.QPAttr{State: ib.RTR}, ib.AttrState))
	n.check(h.qp.Modify(ib.QPAttr{State: ib.RTS}, ib.AttrState|ib.AttrSQPSN))
	return h
}

func (n *gsiNetwork) receive(h *gsiHost, slot uint64) {
	sge := ib.SGE{Addr: h.mr.Addr() + slot*gsiSlot, Length: gsiSlot, LKey: h.mr.LKey()}
	_, err := h.qp.PostRecv([]ib.RecvWR{{ID: slot, SGL: []ib.SGE{sge}}})
	n.check(err)
}

func (n *gsiNetwork) send(now ib.Instant, from int, m *Message) {
	n.sendFrom(n.hosts[from], m)
}

func (n *gsiNetwork) sendFrom(h *gsiHost, m *Message) {
	ah := h.ahs[m.Path.Remote]
	if ah == nil {
		var err error
		ah, err = h.pd.CreateAH(ib.AHAttr{DGID: m.Path.Remote, FlowLabel: m.Path.FlowLabel, HopLimit: 64})
		n.check(err)
		h.ahs[m.Path.Remote] = ah
	}
	_, err := h.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: m.MAD[:], AH: ah.Num(), RemoteQPN: ib.QPNGSI, RemoteQKey: gsiQKey}})
	n.check(err)
	n.dirty = true
}

func (n *gsiNetwork) due() ib.Instant {
	if n.dirty {
		return 0
	}
	next := ib.Never
	for _, h := range n.hosts {
		next = min(next, h.dev.Deadline())
	}
	return next
}

func (n *gsiNetwork) arrive(now ib.Instant, handle func(int, Path, []byte)) {
	n.dirty = false
	for again := true; again; {
		again = false
		for _, b := range n.first {
			again = n.answer(now, b) || again
		}
		for i, h := range n.hosts {
			for h.dev.Step(now) {
				again = true
			}
			again = n.poll(i, h, handle) || again
		}
	}
}

// answer lets a bystander have what it received.
func (n *gsiNetwork) answer(now ib.Instant, b *bystander) bool {
	got := n.poll(0, b.gsiHost, func(_ int, path Path, mad []byte) { b.Handle(now, path, mad) })
	var m Message
	for b.NextMessage(&m) {
		n.sendFrom(b.gsiHost, &m)
	}
	return got
}

// poll hands over what a host received.
func (n *gsiNetwork) poll(i int, h *gsiHost, handle func(int, Path, []byte)) bool {
	var wcs [16]ib.WC
	got, err := h.cq.Poll(wcs[:])
	n.check(err)
	for _, wc := range wcs[:got] {
		n.check(wc.Err())
		if wc.Opcode != ib.WCRecv {
			continue
		}
		b := h.buf[wc.ID*gsiSlot:][:wc.ByteLen]
		ah, err := ib.AHFromWC(h.gids, &wc, b[:ib.GRHLen])
		n.check(err)
		handle(i, Path{Local: h.gids[ah.SGIDIndex].GID, Remote: ah.DGID, FlowLabel: ah.FlowLabel, TrafficClass: ah.TrafficClass}, b[ib.GRHLen:])
		n.receive(h, wc.ID)
	}
	return got > 0
}

// checkFirst fails if messages were dropped for their IDs.
func (n *gsiNetwork) checkFirst() {
	for i, h := range n.hosts {
		if st := h.dev.Stats(); st.DropSpoofedID != 0 || st.GSIForgotten != 0 {
			n.t.Errorf("device %d: %d messages taken for spoofed, %d IDs forgotten", i, st.DropSpoofedID, st.GSIForgotten)
		}
	}
}

// heal does nothing: what is sent again gets through even so.
func (n *gsiNetwork) heal() {}

// openPair makes two devices without faults, the first with two QPs.
func (n *gsiNetwork) openPair() {
	net := mem.NewNetwork()
	for i := range 2 {
		dev, err := roce.Open(wrap.Seal(net.Open([]ib.GID{gidOf(i)}, mem.Options{})), roce.Options{Manual: true})
		n.check(err)
		n.t.Cleanup(func() { dev.Close() })
		for range 2 - i {
			n.hosts = append(n.hosts, n.open(dev))
		}
	}
}

// carry brings all messages of the hosts' managers to where they go.
func (n *gsiNetwork) carry(now ib.Instant, managers ...*Manager) {
	for again := true; again; {
		again = false
		for i, m := range managers {
			var msg Message
			for m.NextMessage(&msg) {
				n.send(now, i, &msg)
				again = true
			}
		}
		n.arrive(now, func(to int, path Path, mad []byte) {
			managers[to].Handle(now, path, mad)
			again = true
		})
	}
}

// TestSameID: of two managers that take the same ID toward one peer at the same time
// the first has it. What the other says with it does not leave, its REJ neither, and
// its next connection has an ID of its own.
func TestSameID(t *testing.T) {
	n := &gsiNetwork{t: t}
	first, second, peer := New(Options{GUID: 1, Seed: 1}), New(Options{GUID: 1, Seed: 1}), New(Options{GUID: 2, Seed: 2})
	now := ib.Instant(0)
	n.openPair()
	carry := func() { n.carry(now, first, second, peer) }
	events := func(m *Manager) (kinds []EventKind, id ID) {
		var ev Event
		for m.NextEvent(&ev) {
			kinds, id = append(kinds, ev.Kind), ev.ID
		}
		return kinds, id
	}
	connect := func(m *Manager, qpn ib.QPN) ID {
		id, err := m.Connect(now, Connect{Params: Params{QPN: qpn, Service: ib.RC}, Path: Path{Local: gidOf(0), Remote: gidOf(1)}, ServiceID: testService, PathMTU: 1024})
		n.check(err)
		carry()
		return id
	}
	_, err := peer.Listen(testService, ib.GID{}, false)
	n.check(err)
	accept := func(from *Manager, id, request ID, qpn ib.QPN) {
		t.Helper()
		_, err := peer.Accept(now, request, Params{QPN: qpn, Service: ib.RC})
		n.check(err)
		carry()
		if got, replied := events(from); len(got) != 1 || got[0] != Replied || replied != id {
			t.Errorf("events %v of %#x, want %v of %#x", got, uint32(replied), Replied, uint32(id))
		}
	}

	id := connect(first, 20)
	if same := connect(second, 30); same != id {
		t.Fatalf("the IDs are %#x and %#x", uint32(id), uint32(same))
	}
	got, request := events(peer)
	if len(got) != 1 || got[0] != Request {
		t.Fatalf("the peer has %v", got)
	}
	second.Release(now, id)
	carry()
	if st := n.hosts[0].dev.Stats(); st.DropSpoofedID != 2 {
		t.Errorf("%d messages dropped, want the REQ and the REJ", st.DropSpoofedID)
	}
	accept(first, id, request, 120)

	other := connect(second, 30)
	got, request = events(peer)
	if len(got) != 1 || got[0] != Request || other == id {
		t.Fatalf("with ID %#x the peer has %v", uint32(other), got)
	}
	accept(second, other, request, 130)
}
