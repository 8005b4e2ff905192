package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// walkWorld is a server of two devices, and its clients.
type walkWorld struct {
	*dice
	t      *testing.T
	live   bool // the devices run in real time
	now    ib.Instant
	devs   [2]*device.Device
	gids   [2]ib.GID
	mtu    ib.MTU
	server *Server
	dial   func() (*abi.Conn, error)
	stop   func()
	totals walkTotals

	clients  []*walkClient // alive
	arenas   []*arena      // of all clients, also of those that have died
	posts    []*post       // by ID
	messages []*walkMessage
	ended    []*opening // the latest, of windows that open nothing any more
	stalled  *stall
	cleanup  []func()
}

func newWalkWorld(t *testing.T, d *dice, live bool) *walkWorld {
	w := &walkWorld{t: t, dice: d, live: live, mtu: []ib.MTU{ib.MTU256, ib.MTU1024}[d.n(2)]}
	shards, seed := 1<<d.n(2), uint64(1+d.n(1<<16))
	open := w.virtualLinks(seed)
	if live {
		open = w.liveLinks
	}
	for i := range w.devs {
		var err error
		w.devs[i], err = device.OpenShards(open(i, shards), device.Options{Name: fmt.Sprint("walk", i),
			Seed: seed + uint64(i), Manual: !live, AckDelay: -1})
		must(t, err)
	}
	w.serve()
	return w
}

// virtualLinks returns a function that opens the links of a device on a bad network in memory.
func (w *walkWorld) virtualLinks(seed uint64) func(i, shards int) []link.Link {
	network, bad := mem.NewNetwork(), w.badNetwork()
	o := mem.Options{RunFrames: []int{1, 4, 64}[w.n(3)]}
	return func(i, shards int) []link.Link {
		w.gids[i] = ib.GIDFromAddr(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}))
		links := network.OpenShards([]ib.GID{w.gids[i]}, o, shards)
		for j, l := range links {
			bad.Seed = seed + uint64(2*j+i)
			links[j] = wrap.Fault(wrap.Seal(unwatched{l}), bad)
		}
		return links
	}
}

// liveLinks opens the links of a device on a loopback address.
func (w *walkWorld) liveLinks(i, shards int) []link.Link {
	addr := linktest.Loopback()
	w.gids[i] = ib.GIDFromAddr(addr)
	links, err := udp.OpenShards([]netip.Addr{addr}, udp.Options{}, shards)
	must(w.t, err)
	for j, l := range links {
		links[j] = wrap.Seal(wrap.Loopback(l))
	}
	return links
}

// unwatched is a link of a device in virtual time, which never waits for a file descriptor.
type unwatched struct{ link.Link }

func (unwatched) Watch(int) error { return nil }

// badNetwork draws the faults of a network in memory.
func (w *walkWorld) badNetwork() wrap.FaultConfig {
	p := float64(w.n(4)) * 0.02
	return wrap.FaultConfig{Drop: p, Duplicate: p / 2, Reorder: p / 2, Delay: p, MaxDelay: 200 * time.Microsecond}
}

// serve starts the server.
func (w *walkWorld) serve() {
	o := Options{OwnProcesses: true, Log: slog.New(&failOnError{slog.DiscardHandler, w.t})}
	if w.one(2) {
		o.Client = Limits{QPs: 6, MRs: 5, CQs: 5, SRQs: 3, PDs: 3, MWs: 4, AHs: 4, Pinned: 300 << 10}
	}
	var err error
	w.server, err = New([]roce.Device{w.devs[0], w.devs[1]}, o)
	must(w.t, err)
	listener := w.listen()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.ServeListener(ctx, listener) }()
	w.stop = func() {
		cancel()
		must(w.t, <-ended)
		for _, d := range w.devs {
			must(w.t, d.Close())
		}
		must(w.t, w.server.Close())
	}
}

// listen makes the way by which clients connect: a socket, or one within the bubble.
func (w *walkWorld) listen() abi.Listener {
	if !w.live {
		local := abi.NewLocal(func(wake func()) { wake() })
		w.dial = func() (*abi.Conn, error) { return local.Dial(w.t.Context()) }
		return local
	}
	addr := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(w.t.TempDir(), "socket")}
	socket, err := net.ListenUnix(addr.Net, addr)
	must(w.t, err)
	w.dial = func() (*abi.Conn, error) {
		u, err := net.DialUnix(addr.Net, nil, addr)
		return abi.NewConn(u), err
	}
	listener, err := abi.Listen(socket)
	must(w.t, err)
	return listener
}

// failOnError is a log in which an error fails the test.
type failOnError struct {
	slog.Handler
	t *testing.T
}

func (h *failOnError) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (h *failOnError) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprint(" ", a)
		return true
	})
	h.t.Error(text)
	return nil
}

// client returns one of the clients; nil if there is none.
func (w *walkWorld) client() *walkClient {
	if len(w.clients) == 0 {
		return nil
	}
	return w.clients[w.n(len(w.clients))]
}

// turn lets one of the devices take a turn, a moment later.
func (w *walkWorld) turn() {
	if w.live {
		for range 10 {
			runtime.Gosched()
		}
		return
	}
	w.now += askAfter
	w.stepAt(w.devs[w.n(2)])
}

// stepAt lets a device take a turn, and then all goroutines run until they wait.
func (w *walkWorld) stepAt(d *device.Device) (more bool) {
	if s := w.stalled; s == nil {
		more = d.Step(w.now)
	} else {
		more = s.watch(func() bool { return d.Step(w.now) })
	}
	synctest.Wait()
	w.endStall(false)
	return more
}

// pass lets time pass: up to the next deadline of a device, or until idle clients are asleep.
func (w *walkWorld) pass() {
	if w.live {
		return
	}
	next := min(w.devs[0].Deadline(), w.devs[1].Deadline())
	if w.one(4) || next == driver.Never {
		next = w.now + idleAfter
	}
	w.now = max(next, w.now+askAfter)
	for _, d := range w.devs {
		w.stepAt(d)
	}
}

// settle lets the devices work until a condition holds.
func (w *walkWorld) settle(what string, holds func() bool) {
	if w.live {
		require.Until(w.t, what, holds)
		return
	}
	for end := w.now + ib.Instant(time.Minute); !holds(); {
		w.now += askAfter
		more := false
		for _, d := range w.devs {
			more = w.stepAt(d) || more
		}
		if !more {
			w.now = max(w.now, min(w.devs[0].Deadline(), w.devs[1].Deadline(), w.now+idleAfter))
		}
		if w.now > end {
			w.t.Fatalf("in a minute never: %s", what)
		}
	}
}

// sessions waits until there are as many sessions as clients.
func (w *walkWorld) sessions() {
	require.Until(w.t, "the session ends", func() bool { return w.server.Clients() == len(w.clients) })
}

// finish lets all requests complete, and all clients go, and checks what is left.
func (w *walkWorld) finish() {
	w.endStall(true)
	w.settle("all requests complete", func() bool {
		w.pollAll()
		return !slices.ContainsFunc(w.clients, (*walkClient).waits)
	})
	w.pollAll() // a receiver may have been polled before its message came, and then its sender was
	for _, m := range w.messages {
		if m.missed() {
			w.t.Errorf("message %d was acknowledged, but not received", m.num)
		}
	}
	w.checkMemory()
	for len(w.clients) > 0 {
		if c := w.client(); w.one(2) {
			c.closeAll()
			c.bury()
		} else {
			c.die()
		}
	}
	for range 20 {
		w.turn()
	}
	w.checkEmpty()
	w.checkMemory()
	w.stop()
	for _, f := range w.cleanup {
		f()
	}
}

func (w *walkWorld) pollAll() {
	for _, c := range w.clients {
		c.poll()
	}
}

// checkEmpty checks that the server holds nothing.
func (w *walkWorld) checkEmpty() {
	s := w.server
	require.Until(w.t, "no user holds anything", func() bool { return len(s.Usage()) == 0 })
	for kind, x := range s.accounts.scarce {
		if x.used != 0 && scarceKind(kind) != plenty {
			w.t.Errorf("%d of scarce resource %d are left (%s), want none", x.used, kind, scarceText[kind])
		}
	}
	s.cm.mu.Lock()
	if n := len(s.cm.owners); n != 0 {
		w.t.Errorf("%d users of the connection manager are left, want none", n)
	}
	s.cm.mu.Unlock()
	for _, u := range s.units {
		u.mu.Lock()
		if len(u.sessions) != 0 {
			w.t.Errorf("%d sessions are left, want none", len(u.sessions))
		}
		u.mu.Unlock()
		for _, d := range u.doorbells {
			d.mu.Lock()
			if len(d.all) != 0 || len(d.active) != 0 {
				w.t.Errorf("doorbells of %d clients are left, %d of them active; want none", len(d.all), len(d.active))
			}
			d.mu.Unlock()
		}
	}
	if n := s.Totals().Faults; n != 0 {
		w.t.Errorf("%d accesses have faulted, want none", n)
	}
}
