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
// a bad network: messages are datagrams with all their headers.
func TestModelGSI(t *testing.T) {
	established := 0
	runSeeds(t, min(*modelSeeds, 40), func(t *testing.T, seed uint64) {
		w := newModel(t, seed, newGSINetwork(t, seed))
		w.run()
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
	dirty bool // something was posted since the devices were stepped
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
		n.hosts = append(n.hosts, n.open(dev))
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
	h := n.hosts[from]
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
		for i, h := range n.hosts {
			for h.dev.Step(now) {
				again = true
			}
			again = n.poll(i, h, handle) || again
		}
	}
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

// heal does nothing: what is sent again gets through even so.
func (n *gsiNetwork) heal() {}
