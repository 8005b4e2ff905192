package simtest

import (
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
)

// port is the link of a host's device, and its cable:
//
//	device - recorder - faults of what it sends - cable ------ network
//	device ------------ faults of what arrives -- cable ------ network
//
// It belongs to the host: it stays when the device is opened again. The loop and the device use it, and the goroutine
// that closes the device, which may send.
type port struct {
	link.Link // of the network: mem
	host      *Host

	mu        sync.Mutex
	unplugged bool
	out, in   []*path // the first is in use; the others still hold frames
}

// open returns the port with a new link, for a device that is to be opened.
func (p *port) open() link.Link {
	h := p.host
	gids := []ib.GID{ib.GIDFromAddr(h.Addr()), ib.GIDFromAddr(h.Addr6()), ib.GIDFromAddr(h.LinkLocal())}
	p.Link = h.net.wire.Open(gids, h.net.config.Link)
	p.out, p.in = nil, nil
	p.setFault(h.net.config.Fault)
	p.setInbound(h.net.config.Inbound)
	return p
}

func (p *port) setUnplugged(unplugged bool) (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.unplugged = p.unplugged, unplugged
	return before
}

func (p *port) setFault(c wrap.FaultConfig) {
	c.OnSend, c.OnRecv, c.Seed = true, false, p.host.seed(streamFault)
	switch {
	case c.Latency == 0:
		c.Latency = DefaultLatency
	case c.Latency < 0:
		c.Latency = 0
	}
	p.change(&p.out, c)
}

func (p *port) setInbound(c wrap.FaultConfig) {
	c.OnSend, c.OnRecv, c.Seed = false, true, p.host.seed(streamInbound)
	p.change(&p.in, c)
}

// change puts a path with the faults of c before those of list.
func (p *port) change(list *[]*path, c wrap.FaultConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.OnDrop = func(_ ib.Instant, _ *link.Run, frame []byte) { p.host.net.record.dropped(frame) }
	for _, old := range *list {
		old.cable.shut = true
	}
	cable := &cable{Link: p.Link, port: p}
	*list = append([]*path{{Link: wrap.Network(cable, c), cable: cable}}, *list...)
}

// path is the faults of one direction, and the end of the cable that they are at.
type path struct {
	link.Link
	cable *cable
}

// cable is what is between the faults and the network.
type cable struct {
	link.Link
	port *port
	shut bool // another path is in use: nothing is received on this one
}

func (c *cable) Send(now ib.Instant, runs []link.Run) (int, error) {
	if !c.port.unplugged {
		return c.Link.Send(now, runs)
	}
	c.lose(runs)
	return len(runs), nil
}

func (c *cable) Recv(now ib.Instant, runs []link.Run) (int, error) {
	if c.shut {
		return 0, nil
	}
	n, err := c.Link.Recv(now, runs)
	if !c.port.unplugged {
		return n, err
	}
	c.lose(runs[:n])
	return 0, err
}

func (c *cable) lose(runs []link.Run) {
	for i := range runs {
		for f := range runs[i].Frames() {
			c.port.host.net.record.dropped(runs[i].Frame(f))
		}
	}
}

func (p *port) Send(now ib.Instant, runs []link.Run) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host.net.record.sent(now, p.host.index, runs)
	return p.out[0].Send(now, runs)
}

func (p *port) Recv(now ib.Instant, runs []link.Run) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range p.in {
		if n, err := path.Recv(now, runs); n > 0 || err != nil {
			return n, err
		}
	}
	p.in = p.in[:1]
	return 0, nil
}

func (p *port) Keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range p.in {
		path.Keep()
	}
}

// release passes on the frames whose time has come, and reports whether there were any. They are under way: it does not
// matter whether the host stands still, or has closed its device.
func (p *port) release(now ib.Instant) (some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest(p.out) > now {
		return false
	}
	for _, path := range p.out {
		_, _ = path.Send(now, nil)
	}
	p.out = slices.DeleteFunc(p.out, func(old *path) bool { return old != p.out[0] && old.Deadline() == driver.Never })
	return true
}

// sendDeadline returns when release has something to do.
func (p *port) sendDeadline() ib.Instant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return earliest(p.out)
}

func (p *port) Deadline() ib.Instant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(earliest(p.out), earliest(p.in))
}

func earliest(list []*path) ib.Instant {
	at := driver.Never
	for _, path := range list {
		at = min(at, path.Deadline())
	}
	return at
}

// Close lets what is under way arrive: the link of the network stays open.
func (p *port) Close() error { return nil }

func (p *port) Wait(time.Duration, bool) error { return nil } // only devices with goroutines of their own wait

// Watch leaves it to those who write the descriptor to call Host.Tell: the loop waits for no descriptor.
func (p *port) Watch(int) error { return nil }

func (p *port) Wake() { p.host.net.loop.ring() }
