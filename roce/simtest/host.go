package simtest

import (
	"net"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Host is a host of a simulation. It has one device, with an IPv4 and two IPv6 addresses.
type Host struct {
	net   *Net
	index int
	boots uint64 // how often the host has booted: part of the seed of its device

	// Guarded by Net.mu:
	dev     roce.Device
	cm      *rdmacm.CM // nil until it is needed
	port    *port
	stopped bool
	stops   []func() (closed func()) // of OnClose
}

func newHost(n *Net, index int) *Host {
	h := &Host{net: n, index: index}
	h.port = &port{host: h}
	h.boot()
	return h
}

// boot opens the device.
func (h *Host) boot() {
	o := h.net.config.Device
	o.Manual, o.Clock = true, h.net.Now
	o.Seed = h.seed(h.boots<<8 | streamDevice)
	h.boots++
	l := wrap.Seal(wrap.Loopback(h.port.open()))
	if w := h.net.config.Wrap; w != nil {
		l = w(h.index, l)
	}
	dev, err := roce.Open(l, o)
	if err != nil {
		h.net.t.Fatalf("open the device of host %d: %v", h.index, err)
	}
	h.dev = dev
}

// Streams of random numbers of a host.
const (
	streamDevice = 1 + iota
	streamFault
	streamInbound
)

// seed returns the seed of a stream of the host's random numbers.
func (h *Host) seed(stream uint64) uint64 {
	return h.net.config.Seed<<24 | uint64(h.index)<<16 | stream
}

// Device returns the host's device. It stays open as long as the simulation, or until Reboot.
func (h *Host) Device() roce.Device {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.dev
}

// CM returns the host's access to the connection manager of its device, which the first call opens. The simulation
// closes it.
func (h *Host) CM() *rdmacm.CM {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.cm == nil {
		cm, err := rdmacm.Open(h.dev, rdmacm.Options{})
		if err != nil {
			h.net.t.Fatalf("open the connection manager of host %d: %v", h.index, err)
		}
		h.cm = cm
	}
	return h.cm
}

// Addr returns the host's IPv4 address: 192.0.2.1 for the first host, and so on (RFC 5737).
func (h *Host) Addr() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(h.index + 1)}) }

// Addr6 returns the host's IPv6 address: 2001:db8::1 for the first host, and so on (RFC 3849).
func (h *Host) Addr6() netip.Addr { return h.addr6(0x20, 0x01, 0x0D, 0xB8) }

// LinkLocal returns the host's link-local address: fe80::1 for the first host, and so on.
func (h *Host) LinkLocal() netip.Addr { return h.addr6(0xFE, 0x80, 0, 0) }

func (h *Host) addr6(a, b, c, d byte) netip.Addr {
	return netip.AddrFrom16([16]byte{a, b, c, d, 15: byte(h.index + 1)})
}

// At returns the host's IPv4 address with a port, for Dial and Listen.
func (h *Host) At(port string) string { return net.JoinHostPort(h.Addr().String(), port) }

// SetFault changes what happens to the frames that the host sends. Frames that are under way are not affected. c.Seed
// is ignored.
func (h *Host) SetFault(c wrap.FaultConfig) {
	h.port.setFault(c)
}

// SetInbound changes what happens to the frames that arrive at the host, as SetFault does for those that it sends.
func (h *Host) SetInbound(c wrap.FaultConfig) {
	h.port.setInbound(c)
}

// Unplug cuts the host off the network: frames that it sends and frames that arrive are lost. Plug undoes it.
func (h *Host) Unplug() { h.port.setUnplugged(true) }

// Plug connects the host to the network again.
func (h *Host) Plug() { h.port.setUnplugged(false) }

// Stop makes the device stand still, as if its process had got SIGSTOP: frames that arrive wait in a queue of limited
// size, and nothing is sent. The program's goroutines go on. Continue undoes it.
func (h *Host) Stop() { h.setStopped(true) }

// Continue lets the device go on.
func (h *Host) Continue() { h.setStopped(false) }

func (h *Host) setStopped(stopped bool) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.stopped = stopped
	h.net.loop.ring()
}

// Reboot ends the device and the connection manager without a word to peers, as a power failure would, and opens new
// ones. Objects of the old device return ib.ErrClosed.
func (h *Host) Reboot() {
	before := h.port.setUnplugged(true)
	h.close()
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.cm = nil
	h.boot()
	h.port.setUnplugged(before)
}

// Tell calls wake, which wakes goroutines that wait for what a program on the host has done, and makes the simulation
// look at the device, to which the program may have given work by other ways than its methods: by a doorbell in shared
// memory. Within a turn of the device it calls wake after the turn: no goroutine runs meanwhile.
func (h *Host) Tell(wake func()) {
	if l := &h.net.loop; !l.tells(wake) {
		wake()
		l.ring()
	}
}

// OnClose has stop called before the device is closed, at the end of the simulation or by Reboot, and the function
// that it returns afterwards: for a program on the host that has the device to itself, like a daemon. What was passed
// last is called first.
func (h *Host) OnClose(stop func() (closed func())) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.stops = append(h.stops, stop)
}

// close closes what the host has opened.
func (h *Host) close() {
	h.net.mu.Lock()
	cm, dev, stops := h.cm, h.dev, h.stops
	h.stopped, h.stops = false, nil
	h.net.mu.Unlock()
	for _, stop := range slices.Backward(stops) {
		defer stop()()
	}
	if cm != nil {
		if err := cm.Close(); err != nil {
			h.net.t.Errorf("close the connection manager of host %d: %v", h.index, err)
		}
	}
	if err := dev.Close(); err != nil {
		h.net.t.Errorf("close the device of host %d: %v", h.index, err)
	}
}

// step passes on the frames whose time has come and lets the device take a turn. It reports whether there was anything
// to do.
func (h *Host) step() bool {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	now := h.net.Now()
	arrived := h.port.release(now)
	return !h.stopped && h.dev.Step(now) || arrived
}

// deadline returns when step has something to do.
func (h *Host) deadline() ib.Instant {
	at := h.port.sendDeadline()
	if !h.stopped {
		at = min(at, h.dev.Deadline())
	}
	return at
}
