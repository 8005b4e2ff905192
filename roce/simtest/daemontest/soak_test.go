package daemontest_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
	"github.com/goroce/goroce/tests/require"
)

// soakOptions are those of the streams of TestSoak: their retries take 1.9 s.
var soakOptions = rsocket.Options{AckTimeout: 16, ReceiveBuffer: 1 << 16, SendBuffer: 1 << 16, KeepAlive: time.Second}

// soak is streams between two hosts, in the midst of faults.
type soak struct {
	t      *testing.T
	net    *simtest.Net
	calm   atomic.Bool // no stream may break
	over   atomic.Bool
	echoed atomic.Int64
	broken atomic.Int64
}

// echo returns what arrives at a listener.
func (s *soak) echo(cm *rdmacm.CM, at string) {
	l, err := rsocket.Listen(s.t.Context(), cm, at, soakOptions)
	must(s.t, err)
	s.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// ask sends pieces over a stream and compares what comes back. A stream that breaks is made anew.
func (s *soak) ask(cm *rdmacm.CM, at string, seed uint64) {
	rng := rand.New(rand.NewPCG(s.net.Seed(), seed))
	for !s.over.Load() {
		conn, err := rsocket.Dial(s.t.Context(), cm, at, soakOptions)
		for err == nil && !s.over.Load() {
			piece := make([]byte, 1+rng.IntN(40_000))
			for i := range piece {
				piece[i] = byte(rng.Uint32())
			}
			got := make([]byte, len(piece))
			if _, err = conn.Write(piece); err == nil {
				_, err = io.ReadFull(conn, got)
			}
			if err == nil && !bytes.Equal(got, piece) {
				s.t.Errorf("%v after the start: %d bytes come back changed", s.net.Now(), len(piece))
			}
			s.echoed.Add(int64(len(piece)))
			time.Sleep(time.Duration(rng.IntN(int(400 * time.Millisecond))))
		}
		if conn != nil {
			_ = conn.Close()
		}
		if err != nil && !s.over.Load() {
			s.broken.Add(1)
			if s.calm.Load() {
				s.t.Errorf("%v after the start, in a calm phase: %v", time.Duration(s.net.Now()), err)
			}
		}
	}
}

// phase has a fault on what a host sends, for some time. The device's MTU changes, too, where it is not 0.
func (s *soak) phase(host int, lasts time.Duration, fault wrap.FaultConfig, mtu int) {
	h := s.net.Hosts[host]
	h.SetFault(fault)
	if mtu != 0 {
		h.Device().SetMTU(mtu)
	}
	time.Sleep(lasts)
	h.SetFault(wrap.FaultConfig{})
	if mtu != 0 {
		h.Device().SetMTU(9000)
	}
}

// TestSoak: what a network has done to streams is over when it is over. Clients of two daemons, who exchange pieces
// both ways, go through loss, corruption, late and doubled packets, a link that fails and smaller MTUs. When the
// retries of that time have ended, no stream breaks for half a minute.
func TestSoak(t *testing.T) {
	c := simtest.Config{Seeds: require.Rounds(2, 50)}
	c.Link.MTU = 9000
	pair(t, c, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		s := &soak{t: t, net: n}
		rng := rand.New(rand.NewPCG(n.Seed(), 0))
		for i, d := range []*daemontest.Daemon{a, b} {
			s.echo(d.CM(t), n.Hosts[i].At("7471"))
		}
		seed := uint64(1)
		for i, d := range []*daemontest.Daemon{a, b} {
			for range 4 { // clients
				cm := d.CM(t)
				for range 1 + rng.IntN(3) {
					go s.ask(cm, n.Hosts[1-i].At("7471"), seed)
					seed++
				}
			}
		}
		severe := []wrap.FaultConfig{{Corrupt: 0.28}, {Drop: 0.1}, {Drop: 0.3}, {Drop: 1}, {Duplicate: 0.3},
			{Reorder: 0.2}, {Delay: 0.3, MaxDelay: 20 * time.Millisecond}, {Late: 0.1, LateBy: 300 * time.Millisecond},
			{Rate: 20e6, Buffer: 10 * time.Millisecond}, {MarkCE: 0.5}, {BlackHole: 1400}}
		for range 2 {
			for range 4 {
				fault := severe[rng.IntN(len(severe))]
				mtu := []int{0, 0, 1500, 4200}[rng.IntN(4)]
				s.phase(rng.IntN(2), time.Duration(rng.IntN(int(5*time.Second))), fault, mtu)
			}
			time.Sleep(10 * time.Second) // retries, and connections that are being made, end
			s.calm.Store(true)
			before := s.echoed.Load()
			time.Sleep(30 * time.Second)
			s.calm.Store(false)
			if got := s.echoed.Load() - before; got < 1<<20 {
				t.Errorf("%d bytes came back in the calm half minute, want a megabyte at least", got)
			}
		}
		s.over.Store(true)
		t.Logf("seed %d: %d bytes came back, %d streams broke", n.Seed(), s.echoed.Load(), s.broken.Load())
		time.Sleep(15 * time.Second)
	})
}
