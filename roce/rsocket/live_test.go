package rsocket

import (
	"flag"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// These tests and benchmarks are on the machine's clock; their devices have goroutines of their own.

func overMem(t testing.TB) (a, b roce.Device)  { return openMem(t, 0) }
func lossyMem(t testing.TB) (a, b roce.Device) { return openMem(t, 0.01) }
func overUDP(t testing.TB) (a, b roce.Device)  { return openUDP(t, 0) }
func lossyUDP(t testing.TB) (a, b roce.Device) { return openUDP(t, 0.02) }

func openMem(t testing.TB, drop float64) (a, b roce.Device) {
	network := mem.NewNetwork()
	open := func(addr string) link.Link {
		return network.Open([]ib.GID{ib.GIDFromAddr(netip.MustParseAddr(addr))}, mem.Options{})
	}
	return openDevices(t, open("192.0.2.1"), open("192.0.2.2"), drop)
}

func openUDP(t testing.TB, drop float64) (a, b roce.Device) {
	open := func() link.Link {
		l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return openDevices(t, open(), open(), drop)
}

var testSeed = flag.Uint64("rsocket.seed", 1, "the seed of lossy networks that are not simulated")

// openDevices opens devices, with goroutines of their own, on links that lose some of what is sent.
func openDevices(t testing.TB, linkA, linkB link.Link, drop float64) (a, b roce.Device) {
	t.Helper()
	if drop > 0 {
		t.Logf("-rsocket.seed=%d", *testSeed)
	}
	device := func(l link.Link, seed uint64) roce.Device {
		l = wrap.Seal(l)
		if drop > 0 {
			l = wrap.Fault(l, wrap.FaultConfig{Seed: seed, Drop: drop})
		}
		dev, err := roce.Open(l, roce.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return dev
	}
	return device(linkA, *testSeed), device(linkB, *testSeed+1)
}

// TestConn runs the contract of net.Conn. It is not simulated, as package nettest has subtests.
func TestConn(t *testing.T) {
	media := map[string]medium{"mem": overMem, "udp": overUDP, "lossy mem": lossyMem, "lossy udp": lossyUDP}
	for name, open := range media {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, open, Options{})
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b := s.connect(t, Options{AckTimeout: 16}) // 0.27 s: the machine may be busy, and packets get lost
				return a, b, func() { a.Close(); b.Close() }, nil
			})
		})
	}
}

// TestMany has a hundred connections come up at once, talk, and leave nothing, not even a mapping. It is not simulated,
// as it counts goroutines.
func TestMany(t *testing.T) {
	const conns = 100
	s := newSite(t, overUDP, Options{MapSlots: 1})
	goroutines, pds := runtime.NumGoroutine(), s.pds.Load()
	ctx := within(t, time.Minute)
	var ends sync.WaitGroup
	ends.Go(func() {
		for range conns {
			b, err := s.l.AcceptConn(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			ends.Go(func() {
				_, _ = io.Copy(b, b)
				b.Close()
				<-b.Done()
			})
		}
	})
	for i := range conns {
		ends.Go(func() {
			a, err := Dial(ctx, s.a, s.l.Addr().String(), Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := a.Map(make([]byte, 100), ib.RemoteWrite, 0); err != nil {
				t.Error(err)
			}
			data := random(uint64(i), 200_000)
			go func() {
				_, _ = a.Write(data)
				a.CloseWrite()
			}()
			wantRead(t, a, data, nil)
			a.Close()
			<-a.Done()
		})
	}
	ends.Wait()
	if n := s.pds.Load(); n != pds {
		t.Errorf("%d protection domains, want %d as before", n, pds)
	}
	require.Until(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// counter is a device that counts PDs, and may have no more CQs. A PD that is gone
// had no QP and no region left.
type counter struct {
	ib.CMDevice
	pds  *atomic.Int32
	fail bool
}

// TestLargeHTTP is TestHTTP with a larger body, over UDP.
func TestLargeHTTP(t *testing.T) { browse(t, overUDP, int64(require.Rounds(5, 100))<<20) }
