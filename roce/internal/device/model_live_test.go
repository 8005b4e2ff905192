package device_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/afxdp"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

var (
	liveSeeds = flag.Int("model.live", require.Rounds(2, 8), "seeds that TestModelLive runs over each link")
	liveSeed  = flag.Uint64("model.liveseed", 0, "the one seed that TestModelLive runs")
)

// realLink is a way to open links that send frames through the kernel.
type realLink struct {
	name string
	veth bool // between two network namespaces, which takes root
	open func(netip.Addr) (link.Link, error)
}

func realLinks() []realLink {
	overUDP := func(o udp.Offload) func(netip.Addr) (link.Link, error) {
		return func(a netip.Addr) (link.Link, error) { return udp.Open([]netip.Addr{a}, udp.Options{Offload: o}) }
	}
	overRawsock := func(o rawsock.Offload) func(netip.Addr) (link.Link, error) {
		return func(a netip.Addr) (link.Link, error) {
			return rawsock.Open([]netip.Addr{a}, rawsock.Options{Offload: o})
		}
	}
	return []realLink{
		{"udp", false, overUDP(udp.OffloadAuto)},
		{"udp, frame by frame", false, overUDP(udp.OffloadOff)},
		{"rawsock", true, overRawsock(rawsock.OffloadAuto)},
		{"rawsock, frame by frame", true, overRawsock(rawsock.OffloadOff)},
		{"afxdp", true, func(a netip.Addr) (link.Link, error) { return afxdp.Open([]netip.Addr{a}, afxdp.Options{}) }},
	}
}

// TestModelLive is TestModel over real links in real time: the kernel splits and merges
// runs, and its threads determine the order of arrival. The faults act above the links, on
// runs. The result depends on timing too, so a seed that failed may pass when it is
// repeated.
func TestModelLive(t *testing.T) {
	for _, d := range realLinks() {
		t.Run(d.name, func(t *testing.T) {
			wire := newWire(t, d)
			first, last := uint64(1), uint64(*liveSeeds)
			if *liveSeed != 0 {
				first, last = *liveSeed, *liveSeed
			}
			played := func() bool {
				c := wire.faults
				return min(c.Dropped, c.Duplicated, c.Reordered, c.Delayed) > 0
			}
			for seed := first; seed <= last || *liveSeed == 0 && !played() && seed <= 20*last; seed++ {
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) { wire.play(t, seed) }) {
					t.Fatalf("seed %d failed; try it again with: go test ./roce -run 'TestModelLive/^%s$' "+
						"-model.liveseed=%[1]d", seed, d.name)
				}
			}
			if s := wire.sent; s.TxFrames <= s.TxRuns {
				t.Errorf("%d frames left in %d runs, want several in some", s.TxFrames, s.TxRuns)
			}
			if *liveSeed == 0 && !played() {
				t.Errorf("got these faults in %d seeds, want some of each: %+v", 20*last, wire.faults)
			}
		})
	}
}

// realWire is a place for two links.
type realWire struct {
	realLink
	at [2]struct {
		addr netip.Addr
		do   func(func() error) error // in the host's network namespace
	}

	// Totals over all runs of the test.
	sent   link.Stats
	faults wrap.FaultCounts
}

func newWire(t *testing.T, d realLink) *realWire {
	w := &realWire{realLink: d}
	if d.veth {
		a, b := linktest.NewVeth(t, 1500)
		w.at[0].addr, w.at[0].do = a.Addr4, a.Do
		w.at[1].addr, w.at[1].do = b.Addr4, b.Do
		return w
	}
	for i := range w.at {
		w.at[i].addr, w.at[i].do = linktest.Loopback(), func(f func() error) error { return f() }
	}
	return w
}

// open makes a host whose link is as bad as bad says.
func (w *realWire) open(t *testing.T, i int, bad wrap.FaultConfig) *host {
	t.Helper()
	var bare link.Link
	err := w.at[i].do(func() (err error) {
		bare, err = w.realLink.open(w.at[i].addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f := wrap.Fault(wrap.Seal(wrap.Loopback(bare)), bad)
	h := openHost(t, f, device.Options{}, modelMem)
	t.Cleanup(func() {
		h.dev.Close() // so that its counters do not change any more
		s, c := bare.Stats(), f.Counts()
		w.sent.TxFrames += s.TxFrames
		w.sent.TxRuns += s.TxRuns
		w.faults.Dropped += c.Dropped
		w.faults.Duplicated += c.Duplicated
		w.faults.Reordered += c.Reordered
		w.faults.Delayed += c.Delayed
	})
	return h
}

func (w *realWire) play(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	bad := wrap.FaultConfig{Seed: seed, MaxDelay: time.Duration(1+rng.IntN(300)) * time.Microsecond}
	if seed%4 != 0 { // one in four is perfect
		bad.Drop, bad.Duplicate = rng.Float64()*0.02, rng.Float64()*0.05
		bad.Reorder, bad.Delay = rng.Float64()*0.05, rng.Float64()*0.1
	}
	a := w.open(t, 0, bad)
	bad.Seed++
	b := w.open(t, 1, bad)
	world := &world{t: t, a: a, b: b}
	mtu := []ib.MTU{256, 512, 1024}[rng.IntN(3)]
	world.connectTo(a.gid(), b.gid(), mtu, func(q *ib.QPAttr) {
		q.MaxRdAtomic = 1 + rng.IntN(4)
		q.Timeout = 16 // 0.27 s: the machine may be busy
		q.MinRNRTimer = uint8(1 + rng.IntN(10))
	})
	world.playLive(newModel(t, world, seed, mtu))
}

// livePatience is the time after which a run counts as stuck.
const livePatience = 2 * time.Minute

// playLive is play in real time.
func (w *world) playLive(a, b *modelSide) {
	for end := time.Now().Add(livePatience); time.Now().Before(end); runtime.Gosched() {
		for _, s := range []*modelSide{a, b} {
			s.post()
			s.poll()
		}
		if !a.ok || !b.ok {
			return
		}
		if a.finished() && b.finished() {
			a.compare()
			b.compare()
			return
		}
	}
	w.t.Errorf("stuck: A has %d/%d posted and waits for %d+%d completions, B %d/%d and %d+%d",
		a.posted, len(a.work), len(a.wantSend), len(a.wantRecv), b.posted, len(b.work), len(b.wantSend),
		len(b.wantRecv))
}
