package afxdp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/packet"
)

// Options for Open. The zero value takes the fastest that works.
type Options struct {
	// Generic attaches the program where the kernel's stack begins instead of in
	// the driver. Any interface can do that, and it is slower.
	Generic bool
	// Copy has the kernel copy frames between UMEM and the driver even if the
	// driver can do without.
	Copy bool
	// Queues bounds how many queues of the interface are served, from the first;
	// 0 serves all. What arrives at others takes the way through the kernel.
	Queues int
	// BusyPoll, if not 0, has the driver run within our system calls, up to that
	// long, instead of on interrupts (SO_PREFER_BUSY_POLL).
	BusyPoll time.Duration

	oneChunk bool // as if the kernel had no frames of several chunks
}

// conn is the link.
type conn struct {
	caps    link.Caps
	kernel  *packet.Conn // the way through the kernel
	program *program
	mem     *umem
	queues  []*queue
	senders int // the first ones, which the interface also has to send
	closed  atomic.Bool
	freed   sync.Once

	// mu is held by the owner's calls, but not while Wait waits; Close takes it once
	// they are told to end.
	mu      sync.Mutex
	headers headers // of what is sent
	rx      rxState
	stats   link.Stats
}

// Open opens a link on the addresses, which one Ethernet interface must hold; an
// IPv6 link-local address carries its zone unless only one interface has it. If
// another program has the port, the error is a *port.Error; what the interface or the
// kernel refuses is an *Error.
func Open(addrs []netip.Addr, o Options) (link.Link, error) {
	kernel, err := packet.Open(addrs, packet.Options{Name: "afxdp"})
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; %s", err, lacking())
		}
		return nil, err
	}
	c := &conn{kernel: kernel}
	if err := c.open(&o); err != nil {
		c.free()
		return nil, fmt.Errorf("afxdp link: %w", err)
	}
	return c, nil
}

func (c *conn) open(o *Options) error {
	netif := c.kernel.NetIf()
	if netif.Loopback {
		return &Error{NetIf: netif.Name, Op: "look for XDP", Err: errors.ErrUnsupported, Advice: "use link udp on loopback"}
	}
	rx, tx := channels(netif.Name)
	if o.Queues > 0 {
		rx = min(rx, o.Queues)
	}
	c.senders = min(rx, tx)
	f := filter{netif: netif, local: c.kernel.Caps().Local, queues: rx, several: !o.oneChunk && knowsSeveral()}
	mode, err := c.attach(o, &f)
	if err != nil {
		return err
	}
	if err := c.openQueues(o, &f); err != nil {
		return refused(netif.Name, "open the sockets", err)
	}
	c.caps = c.kernel.Caps()
	c.caps.MTU = c.program.layout.mtu
	c.caps.Note = c.describe(o, mode)
	c.rx.init(&c.program.layout)
	var fds []int
	for _, q := range c.queues {
		if err := c.program.serve(q.id, q.fd); err != nil {
			return refused(netif.Name, "open the sockets", err)
		}
		fds = append(fds, q.fd)
	}
	return c.kernel.Beside(fds)
}

// attach puts the program on the interface: in the driver or, if that cannot, where
// the stack begins. It returns which of the two, and why.
func (c *conn) attach(o *Options, f *filter) (mode string, err error) {
	mode = "generic XDP"
	if !o.Generic {
		c.program, err = newProgram(f)
		if err == nil {
			return "native XDP", nil
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return "", err
		}
		mode = fmt.Sprintf("generic XDP as the driver refuses (%v)", err.(*Error).Err)
	}
	f.generic = true
	c.program, err = newProgram(f)
	return mode, err
}

// openQueues opens the sockets, in the fastest way that all queues know.
func (c *conn) openQueues(o *Options, f *filter) error {
	b := binding{netif: f.netif.Index, ways: []uint16{unix.XDP_ZEROCOPY, unix.XDP_COPY}, busyPoll: o.BusyPoll}
	if c.program.layout.several {
		b.ways = []uint16{unix.XDP_ZEROCOPY | unix.XDP_USE_SG, unix.XDP_COPY | unix.XDP_USE_SG}
	}
	if o.Copy || f.generic {
		b.ways = b.ways[1:]
	}
	err := c.openQueuesBy(&b, f.queues)
	if err != nil && len(c.queues) > 0 && c.queues[0].zeroCopy {
		c.closeQueues()
		b.ways = b.ways[1:]
		err = c.openQueuesBy(&b, f.queues)
	}
	return err
}

func (c *conn) openQueuesBy(b *binding, n int) (err error) {
	if c.mem, err = newUMEM(n, c.program.layout.chunk); err != nil {
		return err
	}
	for id := range n {
		var first *queue
		if id > 0 {
			first = c.queues[0]
		}
		q, err := openQueue(id, c.mem, first, b)
		if err != nil {
			return err
		}
		c.queues = append(c.queues, q)
	}
	return nil
}

// describe says in a few words what came of it all.
func (c *conn) describe(o *Options, mode string) string {
	note := mode + ", copy mode"
	if c.queues[0].zeroCopy {
		note = mode + ", zero copy"
	}
	note += fmt.Sprintf(", %d queue", len(c.queues))
	if len(c.queues) > 1 {
		note += "s"
	}
	if c.program.layout.several {
		note += ", multi-buffer"
	}
	if o.BusyPoll > 0 {
		note += ", busy polling"
	}
	if mtu := c.kernel.Caps().MTU; c.caps.MTU < mtu {
		note += fmt.Sprintf(", MTU %d of %d because a frame has to fit the chunks", c.caps.MTU, mtu)
	}
	return note
}

// Caps says what the link can do.
func (c *conn) Caps() link.Caps { return c.caps }

// Deadline is never.
func (c *conn) Deadline() ib.Instant { return ib.Never }

// Stats adds what went through the kernel.
func (c *conn) Stats() link.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed.Load() {
		c.stats.RxOverflow = 0
		for _, q := range c.queues {
			c.stats.RxOverflow += q.overflow()
		}
	}
	s, k := c.stats, c.kernel.Stats()
	s.TxRuns += k.TxRuns
	s.TxFrames += k.TxFrames
	s.TxBytes += k.TxBytes
	s.RxRuns += k.RxRuns
	s.RxFrames += k.RxFrames
	s.RxBytes += k.RxBytes
	s.TxErrors += k.TxErrors
	s.RxDropped += k.RxDropped
	s.RxOverflow += k.RxOverflow
	s.LastError = cmp.Or(s.LastError, k.LastError)
	return s
}

// retryTime is how soon the device is offered again what it took no more of.
const retryTime = time.Millisecond

// Wait returns early if frames wait in a TX ring; Recv and Send offer them again.
func (c *conn) Wait(d time.Duration, writable bool) error {
	c.mu.Lock()
	if (d < 0 || d > retryTime) && slices.ContainsFunc(c.queues, (*queue).waiting) {
		d = retryTime
	}
	c.mu.Unlock()
	return c.kernel.Wait(d, writable)
}

// Wake ends a Wait.
func (c *conn) Wake() { c.kernel.Wake() }

// Join makes the host a member of the group; its frames come through the kernel.
func (c *conn) Join(g ib.GID) error { return c.kernel.Join(g) }

// Leave ends the membership.
func (c *conn) Leave(g ib.GID) error { return c.kernel.Leave(g) }

// Close ends a Wait that is under way, and waits for it.
func (c *conn) Close() error {
	c.closed.Store(true)
	c.kernel.Shut()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed.Do(c.free)
	return nil
}

// free takes the program off the interface first, and gives the port back last.
func (c *conn) free() {
	if c.program != nil {
		c.program.close()
	}
	c.closeQueues()
	_ = c.kernel.Close()
}

// closeQueues closes the sockets and frees UMEM. Frames there that Recv has returned
// may still be looked at: then it stays as long as the link can be reached.
func (c *conn) closeQueues() {
	lent := false
	for _, q := range c.queues {
		lent = lent || len(q.lent) > 0
		q.close()
	}
	c.queues = nil
	switch mem := c.mem; {
	case mem == nil:
	case lent:
		runtime.AddCleanup(c, (*umem).free, mem)
	default:
		mem.free()
	}
	c.mem = nil
}
