package rsocket

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
)

// site is two devices with connection managers, and a listener on the second.
type site struct {
	devA, devB roce.Device
	a, b       *rdmacm.CM
	l          *Listener
	pds        atomic.Int32 // of both devices
}

func newSite(t testing.TB, open medium, o Options) *site {
	t.Helper()
	s := &site{}
	s.devA, s.devB = open(t)
	manage := func(dev roce.Device) *rdmacm.CM {
		cm, err := rdmacm.Open(&counter{CMDevice: dev, pds: &s.pds}, rdmacm.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cm.Close() })
		return cm
	}
	s.a, s.b = manage(s.devA), manage(s.devB)
	var err error
	addr := s.devB.Link().Local[0].Addr().String()
	if s.l, err = Listen(within(t, time.Minute), s.b, net.JoinHostPort(addr, "0"), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.l.Close() })
	return s
}

// within returns a context that ends with the test, or earlier.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// connect dials and accepts. The connections are closed with the test.
func (s *site) connect(t testing.TB, o Options) (client, server *Conn) {
	t.Helper()
	ctx := within(t, time.Minute)
	client, err := Dial(ctx, s.a, s.l.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = s.l.AcceptConn(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		<-client.Done()
		<-server.Done()
	})
	return client, server
}

// TestAddr names both ends at both ends.
func TestAddr(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		s := newSite(t, on(n), Options{})
		a, b := s.connect(t, Options{Local: netip.MustParseAddrPort("192.0.2.1:4321")})
		if a.LocalAddr() != b.RemoteAddr() || b.LocalAddr() != a.RemoteAddr() || b.LocalAddr() != s.l.Addr() {
			t.Errorf("client %v to %v, server %v to %v; want %v, %v and %v", a.LocalAddr(), a.RemoteAddr(),
				b.LocalAddr(), b.RemoteAddr(), b.RemoteAddr(), a.RemoteAddr(), s.l.Addr())
		}
		if got := a.LocalAddr().String(); got != "192.0.2.1:4321" || a.LocalAddr().Network() != "rsocket" {
			t.Errorf("the client is %v of %s; want 192.0.2.1:4321 of rsocket", got, a.LocalAddr().Network())
		}
	})
}

// TestEnds closes connections in all ways; both ends end, and leave nothing.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, a, b *Conn){
		"client first": func(t *testing.T, a, b *Conn) { a.Close(); wantRead(t, b, nil, nil); b.Close() },
		"server first": func(t *testing.T, a, b *Conn) { b.Close(); wantRead(t, a, nil, nil); a.Close() },
		"both":         func(_ *testing.T, a, b *Conn) { go a.Close(); b.Close() },
		"half by half": func(t *testing.T, a, b *Conn) {
			a.CloseWrite()
			wantRead(t, b, nil, nil)
			b.CloseWrite()
			wantRead(t, a, nil, nil)
			a.Close()
			b.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
				a, b := newSite(t, on(n), Options{}).connect(t, Options{})
				end(t, a, b)
				<-a.Done()
				<-b.Done()
			})
		})
	}
}

// TestVanished takes the peer's CM away: it disconnects without a word in the
// stream, which is the end of file all the same.
func TestVanished(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		s := newSite(t, on(n), Options{})
		a, _ := s.connect(t, Options{})
		s.b.Close()
		wantRead(t, a, nil, nil)
		if _, err := a.Write([]byte{1}); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Write: %v, want ECONNRESET", err)
		}
		if _, err := s.l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v, want net.ErrClosed", err)
		}
	})
}

// noRTU is a link that loses all RTU messages: attribute 0x14 of the MADs to QP 1.
type noRTU struct{ link.Link }

func (l noRTU) Send(now ib.Instant, out []link.Run) (int, error) {
	for i := range out {
		f := out[i].Frame(0)
		if f[5] == 0 && f[6] == 0 && f[7] == 1 && binary.BigEndian.Uint16(f[36:]) == 0x14 {
			continue
		}
		if n, err := l.Link.Send(now, out[i:i+1]); n == 0 {
			return i, err
		}
	}
	return len(out), nil
}

// TestLostRTU accepts although no RTU arrives: the peer's first message says as
// much.
func TestLostRTU(t *testing.T) {
	c := simtest.Config{Wrap: func(_ int, l link.Link) link.Link { return noRTU{l} }}
	simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
		a, b := newSite(t, on(n), Options{}).connect(t, Options{})
		meet(t, a, b)
		meet(t, b, a)
	})
}

// TestRefused dials what does not listen, and what is no rsocket.
func TestRefused(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		s := newSite(t, on(n), Options{})
		ctx := within(t, time.Minute)
		host := s.devB.Link().Local[0].Addr().String()
		_, err := Dial(ctx, s.a, net.JoinHostPort(host, "1"), Options{})
		if _, ok := errors.AsType[*rdmacm.RejectError](err); !ok {
			t.Errorf("nobody listens: %v, want a *rdmacm.RejectError", err)
		}

		other, err := s.b.Listen(ctx, net.JoinHostPort(host, "0"), rdmacm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var accepts sync.WaitGroup
		accepts.Go(func() {
			if c, err := other.Accept(ctx); err == nil {
				<-c.Done()
				c.Close()
			}
		})
		if _, err := Dial(ctx, s.a, other.Addr().String(), Options{}); !isProtocolError(err) {
			t.Errorf("no rsocket listens: %v, want a *ProtocolError", err)
		}
		accepts.Wait()
	})
}

// TestRefuses has a peer that is no rsocket, which is told so and goes unnoticed
// by Accept.
func TestRefuses(t *testing.T) {
	simtest.Run(t, bad, func(t *testing.T, n *simtest.Net) {
		refused := make(chan error, 1)
		s := newSite(t, on(n), Options{OnRefuse: func(_ netip.AddrPort, err error) { refused <- err }})
		ctx := within(t, time.Minute)
		_, err := s.a.Dial(ctx, s.l.Addr().String(), rdmacm.Config{PrivateData: []byte("hello")})
		if _, ok := errors.AsType[*rdmacm.RejectError](err); !ok {
			t.Errorf("Dial: %v, want a *rdmacm.RejectError", err)
		}
		if err := <-refused; !isProtocolError(err) {
			t.Errorf("OnRefuse was told %v, want a *ProtocolError", err)
		}
		s.connect(t, Options{})
	})
}

// TestOptions refuses what cannot be, before anything is sent.
func TestOptions(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		s := newSite(t, on(n), Options{})
		ctx := within(t, time.Minute)
		for attr, o := range map[string]Options{
			"ReceiveBuffer": {ReceiveBuffer: -1}, "SendBuffer": {SendBuffer: 2 << 30}, "SendQueue": {SendQueue: 15},
			"ReceiveQueue": {ReceiveQueue: 1 << 16}, "Inline": {Inline: 16}, "MapSlots": {MapSlots: 40000},
		} {
			_, err := Dial(ctx, s.a, s.l.Addr().String(), o)
			bad, ok := errors.AsType[*ib.AttrError](err)
			if !ok || bad.Attr != attr {
				t.Errorf("%s out of range: %v, want an *ib.AttrError", attr, err)
			}
			if _, err := Listen(ctx, s.b, ":0", o); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("Listen with %s out of range: %v, want %v", attr, err, ib.ErrInvalid)
			}
		}
		if _, err := Dial(ctx, s.a, "192.0.2.2", Options{}); err == nil {
			t.Error("Dial took an address without a port")
		}
	})
}

// TestListenerClose closes while peers wait and Accept does.
func TestListenerClose(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		s := newSite(t, on(n), Options{})
		accepted := make(chan error)
		go func() {
			_, err := s.l.Accept()
			accepted <- err
		}()
		s.l.Close()
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v, want net.ErrClosed", err)
		}
		if err := s.l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Close again: %v, want net.ErrClosed", err)
		}
	})
}

func (d *counter) AllocPD() (ib.PD, error) {
	pd, err := d.CMDevice.AllocPD()
	if err != nil {
		return nil, err
	}
	d.pds.Add(1)
	return &countedPD{pd, d.pds}, nil
}

func (d *counter) CreateCQ(init ib.CQInit) (ib.CQ, error) {
	if d.fail {
		return nil, ib.ErrLimit
	}
	return d.CMDevice.CreateCQ(init)
}

type countedPD struct {
	ib.PD
	n *atomic.Int32
}

func (p *countedPD) Close() error {
	err := p.PD.Close()
	if err == nil {
		p.n.Add(-1)
	}
	return err
}

// TestNoCQ makes an endpoint on a device that runs out of CQs.
func TestNoCQ(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		dev, _ := on(n)(t)
		var pds atomic.Int32
		if _, err := newEndpoint(&counter{CMDevice: dev, pds: &pds, fail: true}, Options{}); !errors.Is(err,
			ib.ErrLimit) {
			t.Errorf("endpoint: %v, want ErrLimit", err)
		}
		if n := pds.Load(); n != 0 {
			t.Errorf("%d protection domains are left, want none", n)
		}
	})
}
