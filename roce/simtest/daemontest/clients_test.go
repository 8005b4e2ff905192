package daemontest_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/roce/simtest/daemontest"
	"github.com/goroce/goroce/tests/toolstest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair runs f with a daemon on each of two hosts, and checks afterwards that clients that have closed their devices
// hold nothing.
func pair(t *testing.T, c simtest.Config, f func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon)) {
	simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
		a, b := daemontest.Start(t, n.Hosts[0], options), daemontest.Start(t, n.Hosts[1], options)
		t.Cleanup(func() {
			time.Sleep(time.Second)
			for i, d := range []*daemontest.Daemon{a, b} {
				if u := d.Server().Usage(); len(u) != 0 || d.Server().Clients() != 0 {
					t.Errorf("the clients of daemon %d are gone, and %d sessions hold %v, want none", i,
						d.Server().Clients(), u)
				}
			}
		})
		f(t, n, a, b)
	})
}

// connect returns both ends of a connection from a client of a to one of b, which is on host 1.
func connect(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon, o rdmacm.Config) (x, y *rdmacm.Conn) {
	t.Helper()
	return connectOf(t, n, a.CM(t), b.CM(t), o)
}

// connectOf is connect for clients that are there. Objects of o are of b.
func connectOf(t *testing.T, n *simtest.Net, a, b *rdmacm.CM, o rdmacm.Config) (x, y *rdmacm.Conn) {
	t.Helper()
	l, err := b.Listen(t.Context(), n.Hosts[1].At("0"), rdmacm.ListenConfig{Config: o})
	must(t, err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		y, err = l.Accept(t.Context())
		accepted <- err
	}()
	o.PD, o.RecvCQ, o.SRQ = nil, nil, nil
	x, err = a.Dial(t.Context(), l.Addr().String(), o)
	must(t, err)
	must(t, <-accepted)
	return x, y
}

// ping sends a message from a to b.
func ping(t *testing.T, a, b *rdmacm.Conn) {
	t.Helper()
	_, err := b.QP().PostRecv([]ib.RecvWR{{}})
	must(t, err)
	_, err = a.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled}})
	must(t, err)
	for _, cq := range []ib.CQ{b.RecvCQ(), a.SendCQ()} {
		wc, err := ib.WaitOne(t.Context(), cq)
		must(t, err)
		must(t, wc.Err())
	}
}

// TestTime: a round trip between clients takes twice the latency: neither a doorbell nor the event of a completion is
// late. An ACK may be, a little.
func TestTime(t *testing.T) {
	const latency, ack, trips = 100 * time.Millisecond, 50 * time.Microsecond, 100
	c := simtest.Config{Fault: wrap.FaultConfig{Latency: latency}}
	pair(t, c, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		x, y := connect(t, n, a, b, rdmacm.Config{AckTimeout: 20})
		start := n.Now()
		for range trips {
			ping(t, x, y)
		}
		if took := time.Duration(n.Now() - start); took < trips*2*latency || took > trips*(2*latency+ack) {
			t.Errorf("%d round trips took %v, want %v each, and up to %v for an ACK", trips, took, 2*latency, ack)
		}
	})
}

// TestClients: clients of two daemons exchange data on a bad network, several at a time.
func TestClients(t *testing.T) {
	data := bytes.Repeat([]byte("several "), 5000)
	pair(t, simtest.Config{Seeds: 5, Fault: bad}, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		done := make(chan struct{})
		for _, port := range []string{"7471", "7472", "7473"} {
			x, y := a.CM(t), b.CM(t)
			go func() {
				defer func() { done <- struct{}{} }()
				toolstest.Echo(t, x, y, n.Hosts[1].At(port), data)
			}()
		}
		for range 3 {
			<-done
		}
	})
}

// TestStop: when a daemon ends, all that its clients wait for ends at once.
func TestStop(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, _ *daemontest.Daemon) {
		dev := a.Client(t)
		cq, err := dev.CreateCQ(ib.CQInit{Entries: 4})
		must(t, err)
		ch, err := dev.CreateChannel()
		must(t, err)
		cm, err := dev.OpenCM()
		must(t, err)
		waits := map[string]func(context.Context) error{
			"an asynchronous event": func(ctx context.Context) error { _, err := dev.NextEvent(ctx); return err },
			"a completion":          func(ctx context.Context) error { _, err := ib.WaitOne(ctx, cq); return err },
			"a channel":             func(ctx context.Context) error { _, err := ch.Wait(ctx); return err },
			"a CM event":            func(ctx context.Context) error { _, err := cm.NextEvent(ctx); return err },
		}
		ended := make(chan error, len(waits))
		for what, wait := range waits {
			go func() {
				if err := wait(t.Context()); !errors.Is(err, client.ErrGone) {
					t.Errorf("who waits for %s: got %v, want %v", what, err, client.ErrGone)
				}
				ended <- nil
			}()
		}
		time.Sleep(time.Minute)
		start := n.Now()
		a.Stop()
		for range waits {
			<-ended
		}
		if _, err := a.Dial(t.Context()); err == nil {
			t.Error("a daemon that has ended takes clients")
		}
		if took := n.Now() - start; took != 0 {
			t.Errorf("all that took %v, want no time", time.Duration(took))
		}
	})
}

// TestDeath: when a client dies its peer hears of it, and other clients go on.
func TestDeath(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		dev := a.Client(t)
		cm, err := rdmacm.Open(dev, rdmacm.Options{})
		must(t, err)
		_, peer := connectOf(t, n, cm, b.CM(t), rdmacm.Config{})
		x, y := connect(t, n, a, b, rdmacm.Config{})
		start := n.Now()
		must(t, dev.Close())
		<-peer.Done()
		if took := time.Duration(n.Now() - start); took > time.Second {
			t.Errorf("the peer hears after %v that a client has died, want less than a second", took)
		}
		ping(t, x, y)
	})
}

// TestReboot: the clients of a host that reboots lose all, and a new daemon takes new ones.
func TestReboot(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		x, y := connect(t, n, a, b, rdmacm.Config{AckTimeout: 12, RetryCount: 2})
		n.Hosts[1].Reboot()
		time.Sleep(time.Millisecond)
		if _, err := y.QP().PostRecv([]ib.RecvWR{{}}); !errors.Is(err, client.ErrGone) {
			t.Errorf("a client of the host: got %v, want %v", err, client.ErrGone)
		}
		_, err := x.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendSignaled}})
		must(t, err)
		if wc, _ := ib.WaitOne(t.Context(), x.SendCQ()); wc.Status != ib.WCRetryExcErr {
			t.Errorf("its peer: got %v, want %v", wc.Status, ib.WCRetryExcErr)
		}
		x, y = connect(t, n, a, daemontest.Start(t, n.Hosts[1], options), rdmacm.Config{})
		ping(t, x, y)
	})
}

// TestEvents: each client hears of each event of the device, in order, also if it does not take them for long.
func TestEvents(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, _ *daemontest.Daemon) {
		devs := []*client.Device{a.Client(t), a.Client(t)}
		states := []ib.PortState{ib.PortDown, ib.PortActive}
		want := []ib.EventType{ib.EventPortErr, ib.EventPortActive}
		const times = 200
		for i := range times {
			n.Hosts[0].Device().SetPortState(states[i%2])
			time.Sleep(time.Millisecond)
		}
		for _, dev := range devs {
			for i := range times {
				if e, err := dev.NextEvent(t.Context()); err != nil || e.Type != want[i%2] {
					t.Fatalf("event %d: got %v, %v; want %v", i, e.Type, err, want[i%2])
				}
			}
		}
	})
}

// idle lets time pass until the daemon counts its clients as idle: their next doorbells are eventfds only.
func idle(h *simtest.Host) {
	for range 3 {
		time.Sleep(time.Second)
		h.Tell(func() {})
	}
}

// TestTogether: three idle clients post at once, and three goroutines that wait for the CQs of their peer, on one
// channel, get a CQ each.
func TestTogether(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		const clients = 3
		dev := b.Client(t)
		cm, err := rdmacm.Open(dev, rdmacm.Options{})
		must(t, err)
		ch, err := dev.CreateChannel()
		must(t, err)
		var senders [clients]*rdmacm.Conn
		for i := range senders {
			cq, err := dev.CreateCQ(ib.CQInit{Entries: 4, Channel: ch})
			must(t, err)
			var receiver *rdmacm.Conn
			senders[i], receiver = connectOf(t, n, a.CM(t), cm, rdmacm.Config{RecvCQ: cq})
			_, err = receiver.QP().PostRecv([]ib.RecvWR{{}})
			must(t, err)
			must(t, cq.Arm(false))
		}
		got := make(chan ib.CQ, clients)
		for range clients {
			go func() {
				cq, err := ch.Wait(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- cq
			}()
		}
		idle(n.Hosts[0])
		for _, s := range senders {
			_, err := s.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend}})
			must(t, err)
		}
		seen := map[ib.CQ]bool{}
		for range clients {
			seen[<-got] = true
		}
		if len(seen) != clients {
			t.Errorf("%d goroutines got %d CQs, want one each", clients, len(seen))
		}
	})
}

// TestCMTogether: several goroutines wait for events of one CM channel, and as many events come at once.
func TestCMTogether(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, _ *daemontest.Daemon) {
		const ids = 3
		cm, err := a.Client(t).OpenCM()
		must(t, err)
		got := make(chan ib.CMEventType, ids)
		for range ids {
			go func() {
				e, err := cm.NextEvent(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- e.Type
			}()
		}
		time.Sleep(time.Second)
		to := netip.AddrPortFrom(n.Hosts[1].Addr(), 7471)
		for range ids {
			id, err := cm.CreateID(ib.CMIDInit{Space: ib.PortSpaceTCP, Type: ib.RC})
			must(t, err)
			must(t, id.ResolveAddr(netip.AddrPort{}, to, time.Second))
		}
		for range ids {
			if e := <-got; e != ib.CMAddrResolved {
				t.Errorf("got %v, want %v", e, ib.CMAddrResolved)
			}
		}
	})
}

// TestObjectEvents: the event of an SRQ that has fewer receives than its limit names the client's SRQ.
func TestObjectEvents(t *testing.T) {
	pair(t, simtest.Config{}, func(t *testing.T, n *simtest.Net, a, b *daemontest.Daemon) {
		dev := b.Client(t)
		cm, err := rdmacm.Open(dev, rdmacm.Options{})
		must(t, err)
		pd, err := dev.AllocPD()
		must(t, err)
		srq, err := pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1}})
		must(t, err)
		_, err = srq.PostRecv([]ib.RecvWR{{}, {}})
		must(t, err)
		must(t, srq.Modify(ib.SRQAttr{Limit: 2}, ib.SRQLimit))
		x, _ := connectOf(t, n, a.CM(t), cm, rdmacm.Config{PD: pd, SRQ: srq})
		_, err = x.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend}})
		must(t, err)
		e, err := dev.NextEvent(t.Context())
		if err != nil || e.Type != ib.EventSRQLimit || e.SRQ != srq {
			t.Errorf("got %+v, %v; want %v of the SRQ", e, err, ib.EventSRQLimit)
		}
	})
}
