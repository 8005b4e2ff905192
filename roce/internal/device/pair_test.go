package device_test

import (
	"net/netip"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

var (
	gidA = ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	gidB = ib.GIDFromAddr(netip.MustParseAddr("192.0.2.2"))
)

// host is one end of a pair: a device in virtual time, a CQ and memory.
type host struct {
	dev *device.Device
	pd  ib.PD
	cq  ib.CQ
	buf []byte
	mr  ib.MR
	qp  ib.QP
}

// world is two hosts and the time between them.
type world struct {
	t    testing.TB
	now  ib.Instant
	a, b *host

	timeout uint8 // ACK timeout of QPs; 14, 67 ms, if 0
}

// stack builds a host's links: the layers above the seal, and those below it.
type stack struct {
	above, below func(link.Link) link.Link

	shards int                      // 1 if 0
	steer  func(*link.Run, int) int // by which link a run arrives; nil: by that of its shard
	home   int                      // shard of the hosts' CQs, and so of their QPs
}

// newWorld makes two hosts on a network in memory, in virtual time.
func newWorld(t testing.TB, seed uint64, bufSize int, s stack) *world {
	t.Helper()
	network := mem.NewNetwork()
	open := func(gid ib.GID, seed uint64) *host {
		links := network.OpenShards([]ib.GID{gid}, mem.Options{Steer: s.steer}, max(s.shards, 1))
		for i := range links {
			links[i] = s.above(wrap.Seal(s.below(links[i])))
		}
		return openHostShards(t, links, s.home, device.Options{Manual: true, Seed: seed, AckDelay: -1}, bufSize)
	}
	return &world{t: t, a: open(gidA, seed+1), b: open(gidB, seed+2)}
}

// openHost makes a host on a link, for as long as the test runs.
func openHost(t testing.TB, l link.Link, o device.Options, bufSize int) *host {
	t.Helper()
	return openHostShards(t, []link.Link{l}, 0, o, bufSize)
}

// openHostShards makes a host of several shards, with its CQ on one of them.
func openHostShards(t testing.TB, links []link.Link, home int, o device.Options, bufSize int) *host {
	t.Helper()
	if o.InitialWindow == 0 {
		o.InitialWindow = 128 // most tests need more in flight than the first window
	}
	dev, err := device.OpenShards(links, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	for range home { // CQs go to the shards in turn
		if _, err := dev.CreateCQ(ib.CQInit{Entries: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return newHost(t, dev, bufSize)
}

// newHost gives a device a PD, a CQ and memory.
func newHost(t testing.TB, dev *device.Device, bufSize int) *host {
	t.Helper()
	h := &host{dev: dev, buf: make([]byte, bufSize)}
	var err error
	if h.pd, err = dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if h.cq, err = dev.CreateCQ(ib.CQInit{Entries: 1024}); err != nil {
		t.Fatal(err)
	}
	h.mr,
		err = h.pd.RegMR(ib.MRInit{Buf: h.buf,
		Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// slow replaces h's memory by memory that is not direct.
func (h *host) slow(t testing.TB) {
	t.Helper()
	const access = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	m, err := h.pd.(*device.PD).RegMemory(&mrtest.Memory{B: h.buf}, 0x100000, access)
	if err != nil {
		t.Fatal(err)
	}
	h.mr = m
}

// gid returns the host's first address.
func (h *host) gid() ib.GID { return h.dev.Link().Local[0] }

func same(l link.Link) link.Link { return l }

var plain = stack{above: same, below: same}

// connect makes an RC QP on each host and takes them to RTS.
func (w *world) connect(mtu ib.MTU, change func(*ib.QPAttr)) {
	w.t.Helper()
	w.connectTo(gidA, gidB, mtu, change)
}

// connectTo is connect for hosts with other addresses.
func (w *world) connectTo(gidA, gidB ib.GID, mtu ib.MTU, change func(*ib.QPAttr)) {
	w.t.Helper()
	w.makeQP(w.a)
	w.makeQP(w.b)
	w.bringUp(w.a, gidB, w.b.qp.Num(), mtu, change)
	w.bringUp(w.b, gidA, w.a.qp.Num(), mtu, change)
}

func (w *world) makeQP(h *host) {
	w.t.Helper()
	cap := ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
	var err error
	if h.qp, err = h.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: h.cq, RecvCQ: h.cq, Cap: cap}); err != nil {
		w.t.Fatal(err)
	}
}

// bringUp takes h's QP to RTS with a peer.
func (w *world) bringUp(h *host, peer ib.GID, dest ib.QPN, mtu ib.MTU, change func(*ib.QPAttr)) {
	w.t.Helper()
	attr := ib.QPAttr{Port: 1, Access: ib.QPAccessMask, AH: ib.AHAttr{DGID: peer}, PathMTU: mtu, DestQPN: dest,
		RQPSN: 0xFFFFF0, MaxDestRdAtomic: 4, MinRNRTimer: 12, SQPSN: 0xFFFFF0, MaxRdAtomic: 4, Timeout: 14,
		RetryCnt: 7, RNRRetry: 7}
	if w.timeout != 0 {
		attr.Timeout = w.timeout
	}
	if change != nil {
		change(&attr)
	}
	if err := ib.ModifyTo(h.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) modify(q ib.QP, attr ib.QPAttr, mask ib.QPAttrMask) {
	w.t.Helper()
	if err := q.Modify(attr, mask); err != nil {
		w.t.Fatal(err)
	}
}

// settle steps both hosts until neither has anything to do at this instant.
func (w *world) settle() {
	for range 100_000 {
		moreA, moreB := w.a.dev.Step(w.now), w.b.dev.Step(w.now)
		if !moreA && !moreB {
			return
		}
	}
	w.t.Fatalf("the hosts did not settle at %d ns", w.now)
}

// advance moves to the next deadline and settles. It returns false if there is
// none.
func (w *world) advance() bool {
	next := min(w.a.dev.Deadline(), w.b.dev.Deadline())
	if next == driver.Never {
		return false
	}
	w.now = max(w.now, next)
	w.settle()
	return true
}

// poll returns h's next completion, and advances the time until there is one.
func (w *world) poll(h *host) ib.WC {
	w.t.Helper()
	var wc [1]ib.WC
	for range 100_000 {
		w.settle()
		if n, err := h.cq.Poll(wc[:]); err != nil {
			w.t.Fatal(err)
		} else if n == 1 {
			return wc[0]
		}
		if !w.advance() {
			break
		}
	}
	w.t.Fatalf("no completion at %d ns, and nothing to wait for", w.now)
	return ib.WC{}
}

func (h *host) sge(off, n int) []ib.SGE {
	return []ib.SGE{h.mr.SGE(off, n)}
}

func (w *world) send(h *host, wr ib.SendWR) {
	w.t.Helper()
	wr.Flags |= ib.SendSignaled
	if _, err := h.qp.PostSend([]ib.SendWR{wr}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) recv(h *host, wr ib.RecvWR) {
	w.t.Helper()
	if _, err := h.qp.PostRecv([]ib.RecvWR{wr}); err != nil {
		w.t.Fatal(err)
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
}
