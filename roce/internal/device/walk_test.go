package device_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

var (
	walkSeeds = flag.Int("walk.seeds", require.Rounds(1, 3), "how many random walks TestRandomWalk takes")
	walkSeed  = flag.Uint64("walk.seed", 0, "take only this walk")
)

// TestRandomWalk calls random verbs with random arguments, valid and invalid ones, on two
// devices that communicate with each other, from several goroutines at once. Nothing may
// panic, every error must be typed, and after Close no goroutine, file descriptor or memory
// mapping may remain.
func TestRandomWalk(t *testing.T) {
	first, n := uint64(1), *walkSeeds
	if *walkSeed != 0 {
		first, n = *walkSeed, 1
	}
	for _, shards := range []int{1, 2, 4} {
		for i := range n {
			seed := first + uint64(i)
			t.Run(fmt.Sprintf("%d shards, seed %d", shards, seed),
				func(t *testing.T) { walk(t, seed, shards, 4, 3000) })
		}
	}
}

func FuzzRandomWalk(f *testing.F) {
	f.Add(uint64(1), uint16(500))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) { walk(t, seed, 1<<(seed%3), 2, int(steps)%1000) })
}

// walk takes one random walk and checks that it leaves nothing behind.
func walk(t *testing.T, seed uint64, shards, goroutines, steps int) {
	time.AfterFunc(time.Hour, func() {}).Stop() // with the first timer the runtime opens its poller, and keeps it
	before := remains()
	w := &walker{t: t, pools: map[string][]any{}}
	for i := range w.devs {
		addr := linktest.Loopback()
		links, err := udp.OpenShards([]netip.Addr{addr}, udp.Options{}, shards)
		must(t, err)
		for i, l := range links {
			links[i] = wrap.Seal(wrap.Loopback(l))
		}
		dev, err := device.OpenShards(links, device.Options{Seed: seed + uint64(i)})
		must(t, err)
		w.devs[i], w.gids[i] = dev, ib.GIDFromAddr(addr)
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			for range steps {
				w.step(r)
			}
		}()
	}
	all.Wait()
	for _, d := range w.devs {
		must(t, d.Close())
	}
	for _, pool := range w.pools { // objects that outlive their device can still be closed
		for _, o := range pool {
			if c, ok := o.(interface{ Close() error }); ok {
				w.check("close after the device", c.Close())
			}
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: before %v; after Close %v\n%s", seed, before, remains(), stacks())
		}
	})
	require.Until(t, "nothing is left of the device", func() bool { return before.covers(remains()) })
}

// remaining counts the resources that a device could leave behind in its process.
type remaining struct{ goroutines, fds, maps int }

// covers reports whether b is no more than a.
func (a remaining) covers(b remaining) bool {
	return b.goroutines <= a.goroutines && b.fds <= a.fds && b.maps <= a.maps
}

func remains() remaining {
	fds, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	return remaining{runtime.NumGoroutine(), len(fds), strings.Count(string(maps), "memfd")}
}

func stacks() []byte {
	b := make([]byte, 1<<16)
	return b[:runtime.Stack(b, true)]
}

// walker is the world of a random walk: two devices, and all objects ever made,
// closed ones too.
type walker struct {
	t    *testing.T
	devs [2]*device.Device
	gids [2]ib.GID

	mu    sync.Mutex
	pools map[string][]any
}

// add keeps an object, unless err says that there is none.
func (w *walker) add(pool string, o any, err error) error {
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pools[pool] = append(w.pools[pool], o)
	}
	return err
}

// pick returns one of the latest objects of a pool, rarely none.
func pick[T any](w *walker, r *rand.Rand, pool string) (o T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.pools[pool]
	if len(list) == 0 || r.IntN(50) == 0 {
		return o
	}
	recent := list[max(0, len(list)-12):]
	return recent[r.IntN(len(recent))].(T)
}

// typed are the errors that a verb may return.
var typed = []error{ib.ErrInvalid, ib.ErrState, ib.ErrQueueFull, ib.ErrLimit, ib.ErrBusy, ib.ErrClosed,
	ib.ErrNotSupported,
	ib.ErrForeign, context.DeadlineExceeded, context.Canceled}

func (w *walker) check(verb string, err error) {
	if err == nil {
		return
	}
	for _, e := range typed {
		if errors.Is(err, e) {
			return
		}
	}
	w.t.Errorf("%s: error without a type: %v", verb, err)
}

// step calls one verb.
func (w *walker) step(r *rand.Rand) {
	a := actions[r.IntN(len(actions))]
	w.check(a.name, a.do(w, r))
}

// some returns a number that is often small, sometimes at a limit, rarely absurd.
func some(r *rand.Rand) int {
	return [...]int{0, 1, 2, 3, 4, 8, 16, 64, 256, 1 << 15, 1<<15 + 1, 1 << 20, 1<<31 - 1,
		-1}[min(r.IntN(10)+r.IntN(5), 13)]
}

func bits[T ~uint8 | ~uint32](r *rand.Rand, from ...T) (v T) {
	for _, b := range from {
		if r.IntN(2) == 0 {
			v |= b
		}
	}
	return v
}

var done, cancelDone = context.WithCancel(context.Background())

func init() { cancelDone() }

var actions = []struct {
	name string
	do   func(w *walker, r *rand.Rand) error
}{
	{"query", func(w *walker, r *rand.Rand) error {
		d := w.devs[r.IntN(2)]
		_ = d.Attr()
		_ = d.Stats()
		_, err1 := d.QueryPort(r.IntN(3))
		_, err2 := d.GIDs(1)
		_, err3 := d.PKey(1, r.IntN(2))
		return first(err1, err2, err3)
	}},
	{"allocate PD", func(w *walker, r *rand.Rand) error {
		o, err := w.devs[r.IntN(2)].AllocPD()
		return w.add("pd", o, err)
	}},
	{"allocate XRCD", func(w *walker, r *rand.Rand) error {
		o, err := w.devs[r.IntN(2)].AllocXRCD()
		return w.add("xrcd", o, err)
	}},
	{"create channel", func(w *walker, r *rand.Rand) error {
		o, err := w.devs[r.IntN(2)].CreateChannel()
		return w.add("channel", o, err)
	}},
	{"create CQ", func(w *walker, r *rand.Rand) error {
		init := ib.CQInit{Entries: some(r) % (1 << 16)}
		if c := pick[ib.Channel](w, r, "channel"); c != nil {
			init.Channel = c
		}
		o, err := w.devs[r.IntN(2)].CreateCQ(init)
		return w.add("cq", o, err)
	}},
	{"use CQ", func(w *walker, r *rand.Rand) error {
		c := pick[ib.CQ](w, r, "cq")
		if c == nil {
			return nil
		}
		_ = c.Entries()
		wcs := make([]ib.WC, r.IntN(20))
		_, err1 := c.Poll(wcs)
		err2 := c.Arm(r.IntN(2) == 0)
		if r.IntN(8) == 0 {
			return first(err1, err2, c.Resize(some(r)%(1<<16)))
		}
		return first(err1, err2)
	}},
	{"wait", func(w *walker, r *rand.Rand) error {
		if c := pick[ib.Channel](w, r, "channel"); c != nil {
			_, err := c.Wait(done)
			return err
		}
		_, err := w.devs[r.IntN(2)].NextEvent(done)
		return err
	}},
	{"register memory", func(w *walker, r *rand.Rand) error {
		pd := pick[ib.PD](w, r, "pd")
		if pd == nil {
			return nil
		}
		o, err := pd.RegMR(w.memory(r))
		return w.add("mr", o, err)
	}},
	{"re-register", func(w *walker, r *rand.Rand) error {
		m := pick[ib.MR](w, r, "mr")
		if m == nil {
			return nil
		}
		return m.Rereg(ib.ReregMask(r.IntN(9)), pick[ib.PD](w, r, "pd"), w.memory(r))
	}},
	{"allocate MW", func(w *walker, r *rand.Rand) error {
		pd := pick[ib.PD](w, r, "pd")
		if pd == nil {
			return nil
		}
		o, err := pd.AllocMW(ib.MWType(r.IntN(4)))
		return w.add("mw", o, err)
	}},
	{"bind MW", func(w *walker, r *rand.Rand) error {
		mw := pick[ib.MW](w, r, "mw")
		if mw == nil {
			return nil
		}
		return mw.Bind(pick[ib.QP](w, r, "qp"), r.Uint64(), ib.SendFlags(r.IntN(4)), w.bind(r))
	}},
	{"create AH", func(w *walker, r *rand.Rand) error {
		pd := pick[ib.PD](w, r, "pd")
		if pd == nil {
			return nil
		}
		o, err := pd.CreateAH(w.vector(r))
		return w.add("ah", o, err)
	}},
	{"use AH", func(w *walker, r *rand.Rand) error {
		ah := pick[ib.AH](w, r, "ah")
		if ah == nil {
			return nil
		}
		_, err := ah.Query()
		return first(err, ah.Modify(w.vector(r)))
	}},
	{"create SRQ", func(w *walker, r *rand.Rand) error {
		pd := pick[ib.PD](w, r, "pd")
		if pd == nil {
			return nil
		}
		o, err := pd.CreateSRQ(ib.SRQInit{Type: ib.SRQType(r.IntN(3)), XRCD: pick[ib.XRCD](w, r, "xrcd"),
			CQ:      pick[ib.CQ](w, r, "cq"),
			SRQAttr: ib.SRQAttr{MaxWR: some(r) % (1 << 12), MaxSGE: r.IntN(34), Limit: r.IntN(4)}})
		return w.add("srq", o, err)
	}},
	{"use SRQ", func(w *walker, r *rand.Rand) error {
		s := pick[ib.SRQ](w, r, "srq")
		if s == nil {
			return nil
		}
		_, err1 := s.Query()
		_, err2 := s.PostRecv([]ib.RecvWR{{ID: 1, SGL: w.sgl(r)}, {ID: 2, SGL: w.sgl(r)}})
		return first(err1, err2, s.Modify(ib.SRQAttr{MaxWR: some(r) % (1 << 12), Limit: r.IntN(6)},
			ib.SRQAttrMask(r.IntN(5))))
	}},
	{"create QP", func(w *walker, r *rand.Rand) error {
		o, err := w.createQP(r, [...]ib.QPType{ib.RC, ib.UC, ib.UD, ib.XRCINI, ib.XRCTGT, ib.GSI, 0, 200}[r.IntN(8)])
		return w.add("qp", o, err)
	}},
	{"modify QP", func(w *walker, r *rand.Rand) error {
		q := pick[ib.QP](w, r, "qp")
		if q == nil {
			return nil
		}
		_, err := q.Query()
		return first(err, q.Modify(w.attr(r, ib.QPState(r.IntN(8))), ib.QPAttrMask(r.Uint32()&r.Uint32()&(1<<26-1))))
	}},
	{"bring QP up", func(w *walker, r *rand.Rand) error {
		if q := pick[ib.QP](w, r, "qp"); q != nil {
			return w.up(q, w.attr(r, ib.StateRTS))
		}
		return nil
	}},
	{"connect", func(w *walker, r *rand.Rand) error { return w.connect(r) }},
	{"post send", func(w *walker, r *rand.Rand) error {
		q := pick[ib.QP](w, r, "qp")
		if q == nil {
			return nil
		}
		_, err := q.PostSend([]ib.SendWR{w.request(r), w.request(r)})
		return err
	}},
	{"post receive", func(w *walker, r *rand.Rand) error {
		q := pick[ib.QP](w, r, "qp")
		if q == nil {
			return nil
		}
		_, err := q.PostRecv([]ib.RecvWR{{ID: 1, SGL: w.sgl(r)}, {ID: 2, SGL: w.sgl(r)}})
		return err
	}},
	{"multicast", func(w *walker, r *rand.Rand) error {
		q := pick[ib.QP](w, r, "qp")
		if q == nil {
			return nil
		}
		group := [...]ib.GID{ib.GIDFromAddr(netip.MustParseAddr("239.7.7.7")), w.gids[0], {}}[r.IntN(3)]
		return first(q.AttachMulticast(group), q.DetachMulticast(group))
	}},
	{"port", func(w *walker, r *rand.Rand) error {
		w.devs[r.IntN(2)].SetPortState([...]ib.PortState{ib.PortActive, ib.PortDown}[r.IntN(2)])
		return nil
	}},
	{"close", func(w *walker, r *rand.Rand) error {
		kinds := [...]string{"pd", "xrcd", "channel", "cq", "mr", "mw", "ah", "srq", "qp", "qp"}
		o := pick[interface{ Close() error }](w, r, kinds[r.IntN(len(kinds))])
		if o == nil {
			return nil
		}
		return first(o.Close(), o.Close())
	}},
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// memory draws memory to register.
func (w *walker) memory(r *rand.Rand) ib.MRInit {
	m := ib.MRInit{Buf: make([]byte, r.IntN(5000)), Access: bits(r, ib.LocalWrite, ib.RemoteWrite, ib.RemoteRead,
		ib.RemoteAtomic,
		ib.BindWindows, ib.RemoteInvalidate, ib.FlushGlobal)}
	switch r.IntN(10) {
	case 0:
		m.IOVA = r.Uint64()
	case 1:
		m.Access |= ib.ZeroBased | ib.FlushPersistent
	default:
		m.Access |= ib.LocalWrite
	}
	return m
}

// piece draws a piece of a region that was once registered, or nonsense.
func (w *walker) piece(r *rand.Rand) (addr uint64, n uint32, key ib.Key) {
	m := pick[ib.MR](w, r, "mr")
	if m == nil {
		return r.Uint64(), r.Uint32N(1 << 20), ib.Key(r.Uint32())
	}
	n = r.Uint32N(uint32(m.Len()) + 2)
	return (m.Addr() + uint64(r.IntN(m.Len()-min(int(n), m.Len())+1))) &^ uint64(7*r.IntN(2)), n, m.RKey()
}

func (w *walker) sgl(r *rand.Rand) []ib.SGE {
	sgl := make([]ib.SGE, r.IntN(4))
	for i := range sgl {
		sgl[i].Addr, sgl[i].Length, sgl[i].LKey = w.piece(r)
	}
	return sgl
}

func (w *walker) bind(r *rand.Rand) (b ib.MWBind) {
	var n uint32
	b.Addr, n, b.LKey = w.piece(r)
	b.Length, b.Access = uint64(n), bits(r, ib.RemoteWrite, ib.RemoteRead, ib.RemoteAtomic, ib.ZeroBased)
	return b
}

func (w *walker) vector(r *rand.Rand) ib.AHAttr {
	a := ib.AHAttr{DGID: w.gids[r.IntN(2)], TrafficClass: uint8(r.IntN(256)), HopLimit: uint8(r.IntN(3)),
		FlowLabel: r.Uint32N(1 << 20)}
	if r.IntN(10) == 0 {
		a.SGIDIndex, a.DGID[0], a.FlowLabel = some(r), uint8(r.IntN(256)), r.Uint32()
	}
	return a
}

// request draws a send request.
func (w *walker) request(r *rand.Rand) ib.SendWR {
	wr := ib.SendWR{ID: r.Uint64(), Opcode: ib.WROpcode(r.IntN(17)), Imm: r.Uint32(),
		RemoteQPN:  ib.QPN(r.Uint32N(1 << 24)),
		RemoteQKey: qkey, RemoteSRQ: r.Uint32N(4), Compare: r.Uint64N(2), Swap: r.Uint64N(2), Bind: w.bind(r),
		Flags: bits(r, ib.SendFence, ib.SendSignaled, ib.SendSolicited),
		Flush: ib.Flush{Length: r.Uint32N(100), Level: ib.FlushLevel(r.IntN(4)), Extent: ib.FlushExtent(r.IntN(3))}}
	wr.RemoteAddr, _, wr.RKey = w.piece(r)
	wr.InvalidateKey = wr.RKey
	if mw := pick[ib.MW](w, r, "mw"); mw != nil && r.IntN(2) == 0 {
		wr.RKey = ib.NextKey(mw.RKey())
		wr.InvalidateKey = mw.RKey()
	}
	if ah := pick[ib.AH](w, r, "ah"); ah != nil {
		wr.AH = ah.Num()
	}
	if q := pick[ib.QP](w, r, "qp"); q != nil {
		wr.RemoteQPN = q.Num()
	}
	switch {
	case r.IntN(4) == 0:
		wr.Flags |= ib.SendInline
		wr.Inline = make([]byte, r.IntN(70))
	default:
		wr.SGL = w.sgl(r)
	}
	if wr.Opcode == ib.WRCompareSwap || wr.Opcode == ib.WRFetchAdd || wr.Opcode == ib.WRAtomicWrite {
		wr.RemoteAddr &^= 7
		if len(wr.SGL) > 0 {
			wr.SGL = wr.SGL[:1]
			wr.SGL[0].Length = 8
		}
	}
	return wr
}

func (w *walker) createQP(r *rand.Rand, typ ib.QPType) (ib.QP, error) {
	pd := pick[ib.PD](w, r, "pd")
	if pd == nil {
		return nil, ib.ErrInvalid
	}
	init := ib.QPInit{Type: typ, SendCQ: pick[ib.CQ](w, r, "cq"), RecvCQ: pick[ib.CQ](w, r, "cq"),
		XRCD:   pick[ib.XRCD](w, r, "xrcd"),
		SigAll: r.IntN(2) == 0, Cap: ib.QPCap{MaxSendWR: r.IntN(40), MaxRecvWR: r.IntN(40), MaxSendSGE: r.IntN(6),
			MaxRecvSGE: r.IntN(6), MaxInline: r.IntN(128)}}
	if r.IntN(3) == 0 {
		init.SRQ = pick[ib.SRQ](w, r, "srq")
	}
	if r.IntN(20) == 0 {
		init.Cap.MaxSendWR, init.Cap.MaxSendSGE = some(r), some(r)
	}
	return pd.CreateQP(init)
}

// attr draws attributes, mostly such that they are legal.
func (w *walker) attr(r *rand.Rand, to ib.QPState) ib.QPAttr {
	a := ib.QPAttr{State: to, CurState: ib.QPState(r.IntN(7)), Port: 1, Access: ib.QPAccessMask, QKey: qkey,
		AH:      w.vector(r),
		PathMTU: ib.MTU1024, DestQPN: ib.QPN(r.Uint32N(1 << 24)), MaxRdAtomic: r.IntN(9), MaxDestRdAtomic: r.IntN(9),
		MinRNRTimer: 1, Timeout: uint8(8 + r.IntN(3)), RetryCnt: uint8(r.IntN(3)), RNRRetry: uint8(r.IntN(3))}
	if r.IntN(20) == 0 {
		a.Port, a.PathMTU, a.MaxRdAtomic, a.Timeout = some(r), ib.MTU(some(r)), some(r), uint8(r.IntN(256))
	}
	return a
}

// up takes a QP to RTS the proper way for its type.
func (w *walker) up(q ib.QP, a ib.QPAttr) error {
	const toInit, peer = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort,
		ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	const reply, retry = ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer,
		ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxRdAtomic
	masks := map[ib.QPType][3]ib.QPAttrMask{
		ib.RC:     {toInit | ib.AttrAccess, peer | reply, ib.AttrState | ib.AttrSQPSN | retry},
		ib.UC:     {toInit | ib.AttrAccess, peer, ib.AttrState | ib.AttrSQPSN},
		ib.UD:     {toInit | ib.AttrQKey, ib.AttrState, ib.AttrState | ib.AttrSQPSN},
		ib.XRCINI: {toInit | ib.AttrAccess, peer, ib.AttrState | ib.AttrSQPSN | retry},
		ib.XRCTGT: {toInit | ib.AttrAccess, peer | reply, ib.AttrState | ib.AttrSQPSN | ib.AttrTimeout},
	}[q.Type()]
	for i, to := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		a.State = to
		if err := q.Modify(a, masks[i]); err != nil {
			return err
		}
	}
	return nil
}

// connect makes a pair of QPs that reach each other, so that there is traffic.
func (w *walker) connect(r *rand.Rand) error {
	types := [...][2]ib.QPType{{ib.RC, ib.RC}, {ib.RC, ib.RC}, {ib.UC, ib.UC}, {ib.UD, ib.UD},
		{ib.XRCINI, ib.XRCTGT}}[r.IntN(5)]
	a, err := w.createQP(r, types[0])
	if err != nil {
		return err
	}
	b, err := w.createQP(r, types[1])
	if err != nil {
		return first(a.Close(), err)
	}
	_ = w.add("qp", a, nil)
	_ = w.add("qp", b, nil)
	attr := w.attr(r, ib.StateRTS)
	attr.AH, attr.PathMTU = ib.AHAttr{DGID: w.gids[r.IntN(2)]}, ib.MTU1024
	attr.DestQPN = b.Num()
	err1 := w.up(a, attr)
	attr.DestQPN, attr.AH.DGID = a.Num(), w.gids[r.IntN(2)]
	return first(err1, w.up(b, attr))
}
