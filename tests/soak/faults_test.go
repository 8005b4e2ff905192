package soak

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/forward"
)

// fault is something that happens to a host or to the network.
type fault struct {
	name     string
	explains []string
	severe   bool
	most     time.Duration // 0: as long as the phase wants
	begin    func(s *soak, h *host) (end func())
}

// faults are those that phases choose from; mild phases from those that are not severe.
var faults = []fault{
	{name: "1 % lost", explains: loss, begin: onWire(wrap.FaultConfig{Drop: 0.01})},
	{name: "2 % doubled", explains: loss, begin: onWire(wrap.FaultConfig{Duplicate: 0.02})},
	{name: "2 % out of order", explains: loss, begin: onWire(wrap.FaultConfig{Reorder: 0.02})},
	{name: "2 ms late", explains: loss,
		begin: onWire(wrap.FaultConfig{Latency: 2 * time.Millisecond, Jitter: time.Millisecond})},
	{name: "congestion marked", explains: loss, begin: onWire(wrap.FaultConfig{MarkCE: 0.3})},
	{name: "reload", begin: reload},
	{name: "another address", begin: anotherAddress},
	{name: "MTU changed", explains: loss, begin: mtu(4200)},
	{name: "client stopped", explains: loss, most: 3 * time.Second, begin: stopClient},

	{name: "10 % lost", explains: loss, severe: true, begin: onWire(wrap.FaultConfig{Drop: 0.1})},
	{name: "30 % lost", explains: loss, severe: true, begin: onWire(wrap.FaultConfig{Drop: 0.3})},
	{name: "28 % corrupted", explains: loss, severe: true, begin: onWire(wrap.FaultConfig{Corrupt: 0.28})},
	{name: "truncated, wrong checksums", explains: loss, severe: true,
		begin: onWire(wrap.FaultConfig{Truncate: 0.1, BadChecksum: 0.1})},
	{name: "30 % doubled", explains: loss, severe: true, begin: onWire(wrap.FaultConfig{Duplicate: 0.3})},
	{name: "20 % out of order", explains: loss, severe: true, begin: onWire(wrap.FaultConfig{Reorder: 0.2})},
	{name: "30 % up to 20 ms late", explains: loss, severe: true,
		begin: onWire(wrap.FaultConfig{Delay: 0.3, MaxDelay: 20 * time.Millisecond})},
	{name: "10 % 300 ms late", explains: loss, severe: true,
		begin: onWire(wrap.FaultConfig{Late: 0.1, LateBy: 300 * time.Millisecond})},
	{name: "20 Mb/s", explains: loss, severe: true,
		begin: onWire(wrap.FaultConfig{Rate: 20e6, Buffer: 10 * time.Millisecond})},
	{name: "nothing longer than 600 bytes", explains: loss, severe: true,
		begin: onWire(wrap.FaultConfig{BlackHole: 600})},
	{name: "cable cut", explains: loss, severe: true, begin: func(s *soak, _ *host) func() {
		s.net.Part(s)
		return func() { s.net.Join(s) }
	}},
	{name: "link down", explains: still, severe: true, begin: linkDown},
	{name: "MTU less than the path's", explains: loss, severe: true, begin: mtu(900)},
	{name: "address gone", explains: death, severe: true, most: 3 * time.Second, begin: addressGone},
	{name: "client killed", explains: death, severe: true, most: time.Second, begin: killClient},
	{name: "daemon killed", explains: death, severe: true, most: time.Second, begin: killDaemon},
	{name: "daemon stopped", explains: still, severe: true, most: 4 * time.Second, begin: stopDaemon},
	{name: "its packets corrupted", explains: still, severe: true, begin: injected("corrupt", 0.28)},
	{name: "its packets lost", explains: still, severe: true, begin: injected("drop", 0.1)},
}

// history is a run of faults that is played first. After it, all requests to one host have failed at one instant.
var history = []struct {
	fault
	lasts time.Duration
}{
	{fault{name: "MTU lowered", explains: loss, begin: mtu(4200)}, 2 * time.Second},
	{fault{name: "28 % of its packets corrupted", explains: still, begin: injected("corrupt", 0.28)}, 5 * time.Second},
	{fault{name: "10 % of its packets lost", explains: still, begin: injected("drop", 0.1)}, 3 * time.Second},
}

// onWire has a forwarder carry what crosses the cable, which does to it what a bad network does.
func onWire(c wrap.FaultConfig) func(s *soak, _ *host) func() {
	return func(s *soak, _ *host) func() {
		if s.wire {
			return func() {} // the cable has a fault
		}
		s.wire = true
		c.Seed = s.rng.Uint64()
		s.net.Part(s)
		var f *forward.Forwarder
		err := s.net.Cable.Do(func() (err error) {
			f, err = forward.Open(s.net.Left, s.net.Right, c)
			return err
		})
		if err != nil {
			s.Fatal(err)
		}
		return func() {
			there, back := f.Counts()
			if err := f.Close(); err != nil {
				s.Error(err)
			}
			s.net.Join(s)
			s.wire = false
			s.say("to B: %+v, to A: %+v", there, back)
		}
	}
}

// injected has the daemon of a host do something to what it sends.
func injected(action string, p float64) func(s *soak, h *host) func() {
	return func(s *soak, h *host) func() {
		admin := filepath.Join(h.dir, "a")
		out, err := exec.Command(goroced, "fault", "add", action, "--direction", "out", "-p", fmt.Sprint(p), "--seed",
			strconv.FormatUint(s.rng.Uint64()>>1, 10), "--admin", admin).CombinedOutput()
		if err != nil {
			s.Errorf("fault add: %v\n%s", err, out)
		}
		return func() {
			if out, err := exec.Command(goroced, "fault", "clear", "--admin", admin).CombinedOutput(); err != nil {
				s.Errorf("fault clear: %v\n%s", err, out)
			}
		}
	}
}

// mtu lowers the MTU of a host's interface.
func mtu(mtu int) func(s *soak, h *host) func() {
	set := func(s *soak, h *host, mtu int) {
		h.ns.Command(s, "ip", "link", "set", h.ns.IfName, "mtu", strconv.Itoa(mtu))
	}
	return func(s *soak, h *host) func() {
		set(s, h, min(mtu, h.mtu))
		return func() { set(s, h, h.mtu) }
	}
}

// linkDown takes a host's interface down.
func linkDown(s *soak, h *host) func() {
	h.ns.Command(s, "ip", "link", "set", h.ns.IfName, "down")
	return func() {
		h.ns.Command(s, "ip", "link", "set", h.ns.IfName, "up")
		h.ns.Command(s, "ip", "addr", "replace", h.ns.Addr6.String()+"/64", "dev", h.ns.IfName, "nodad")
		s.net.Route(s)
	}
}

// anotherAddress gives a host an address more, and takes it away.
func anotherAddress(s *soak, h *host) func() {
	h.ns.Command(s, "ip", "addr", "add", "10.98.0.1/32", "dev", h.ns.IfName)
	return func() { h.ns.Command(s, "ip", "addr", "del", "10.98.0.1/32", "dev", h.ns.IfName) }
}

// addressGone takes a host's address away.
func addressGone(s *soak, h *host) func() {
	addr := h.ns.Addr4.String() + "/24"
	h.ns.Command(s, "ip", "addr", "del", addr, "dev", h.ns.IfName)
	return func() {
		h.ns.Command(s, "ip", "addr", "add", addr, "dev", h.ns.IfName)
		s.net.Route(s)
	}
}

// reload has a daemon read its configuration, in which something has changed.
func reload(s *soak, h *host) func() {
	h.configure(s, []string{"info", "debug"}[s.rng.IntN(2)])
	h.daemon().signal(syscall.SIGHUP)
	return func() {
		h.configure(s, "info")
		h.daemon().signal(syscall.SIGHUP)
	}
}

// stopDaemon stops a daemon, which says so afterwards if that lasts for long.
func stopDaemon(s *soak, h *host) func() {
	const said, long = "the device stood still", 2 * time.Second
	began, before := time.Now(), strings.Count(h.daemon().out.String(), said)
	h.daemon().signal(syscall.SIGSTOP)
	return func() {
		stopped := time.Since(began)
		h.daemon().signal(syscall.SIGCONT)
		if stopped > long {
			require.Until(s, "the daemon says that it stood still", func() bool {
				return strings.Count(h.daemon().out.String(), said) > before
			})
		}
	}
}

func killDaemon(s *soak, h *host) func() {
	h.daemon().kill()
	return func() {
		h.startDaemon(s)
		s.watch.forget(h)
	}
}

// victim chooses a program of a host.
func (s *soak) victim(h *host) *program {
	var list []*program
	for _, p := range s.programs {
		if p.host == h && p.role != "probe" {
			list = append(list, p)
		}
	}
	return list[s.rng.IntN(len(list))]
}

func stopClient(s *soak, h *host) func() {
	p := s.victim(h).process()
	p.signal(syscall.SIGSTOP)
	return func() { p.signal(syscall.SIGCONT) }
}

// killClient kills a program, which its keeper starts again.
func killClient(s *soak, h *host) func() {
	p := s.victim(h)
	old := p.process()
	p.process().kill()
	return func() {
		require.Until(s, "the program runs again", func() bool { return p.process() != old })
	}
}

// play has a fault for some time.
func (s *soak) play(f *fault, h *host, lasts time.Duration) (end func()) {
	if f.most != 0 {
		lasts = min(lasts, f.most)
	}
	s.say("%s, on %s for %v", f.name, h.name, lasts.Round(10*time.Millisecond))
	over := s.ledger.begin(f.name, f.explains)
	undo := f.begin(s, h)
	timer := time.After(lasts)
	return func() {
		<-timer
		undo()
		over()
	}
}

// choose returns faults that may be active together: one, or two of different hosts.
func (s *soak) choose(severe bool) []*fault {
	var list []*fault
	for i := range faults {
		if severe || !faults[i].severe {
			list = append(list, &faults[i])
		}
	}
	s.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+s.rng.IntN(2)]
}
