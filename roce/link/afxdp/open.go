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
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/packet"
)

// Options for Open. The zero value uses the fastest mode that works.
type Options struct {
	// Generic attaches the program at the start of the kernel's stack instead of in the driver. That works with any
	// interface, and is slower.
	Generic bool
	// Copy makes the kernel copy frames between UMEM and driver, even if the driver supports zero copy.
	Copy bool
	// Queues limits how many queues of the interface are served, from the first on; 0 serves all. Packets of the other
	// queues go through the kernel.
	Queues int
	// BusyPoll, if not 0, makes the driver run in our system calls, for up to that time each, instead of on interrupts
	// (SO_PREFER_BUSY_POLL).
	BusyPoll time.Duration

	oneChunk bool // for tests: as if the kernel had no frames of several chunks
}

// conn is a link, one of possibly several on an interface.
type conn struct {
	*base
	caps   link.Caps
	local  local.Set
	wait   waiter
	closed atomic.Bool
	freed  sync.Once

	// main is set for the link that also receives what comes through the kernel.
	main    bool
	queues  []*queue
	senders int // the first queues, which the interface also has for sending

	// mu is held during calls of the owner, except while Wait blocks. Close takes it after all calls have been told to
	// end.
	mu      sync.Mutex
	headers headers // of the run that is being sent
	rx      rxState
	stats   link.Stats
}

// base is what the links on an interface share.
type base struct {
	kernel  *packet.Conn // the packet socket
	program *program
	filter  filter
	mem     *umem
	users   atomic.Int32 // number of open links
	lent    atomic.Bool  // a link was closed while frames that it had received could still be in use
}

// Open opens a link on the addresses, which one Ethernet interface must have. An IPv6 link-local address needs its
// zone, unless only one interface has it. If another program has the port, the error is a *port.Error; what the
// interface or the kernel refuses is an *Error.
func Open(addrs []netip.Addr, o Options) (link.Link, error) {
	links, err := OpenShards(addrs, o, 1)
	if err != nil {
		return nil, err
	}
	return links[0], nil
}

func (b *base) open(o *Options, shards int) (conns []*conn, err error) {
	netif := b.kernel.NetIf()
	if netif.Loopback {
		return nil, &Error{NetIf: netif.Name, Op: "look for XDP", Err: errors.ErrUnsupported,
			Advice: "use link udp on loopback"}
	}
	rx, tx := channels(netif.Name)
	if o.Queues > 0 {
		rx = min(rx, o.Queues)
	}
	if n := min(rx, tx); n < shards {
		return nil, &Error{NetIf: netif.Name, Op: fmt.Sprintf("open %d shards", shards), Err: errors.ErrUnsupported,
			Advice: fmt.Sprintf("each needs a queue to receive and one to send, and there are %d; `ethtool -L` may "+
				"make more", n)}
	}
	b.filter = filter{netif: netif, local: b.kernel.Caps().Local, queues: rx, several: !o.oneChunk && knowsSeveral()}
	mode, err := b.attach(o, &b.filter)
	if err != nil {
		return nil, err
	}
	queues, err := b.openQueues(o, &b.filter)
	if err == nil {
		conns, err = b.share(queues, min(rx, tx), shards)
	}
	if err != nil {
		closeAll(queues)
		return nil, refused(netif.Name, "open the sockets", err)
	}
	caps := b.kernel.Caps()
	caps.MTU = b.program.layout.mtu
	caps.Note = b.describe(o, mode, queues)
	caps.Keeps = false // frames lie in the UMEM
	for _, c := range conns {
		c.caps = caps
		c.local.Init(caps.Name, caps.Local)
		c.rx.init(&b.program.layout)
	}
	return conns, nil
}

// attach attaches the program to the interface: in the driver or, if that fails, at the start of the stack. It returns
// which, and why.
func (b *base) attach(o *Options, f *filter) (mode string, err error) {
	mode = "generic XDP"
	if !o.Generic {
		b.program, err = newProgram(f)
		if err == nil {
			return "native XDP", nil
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return "", err
		}
		mode = fmt.Sprintf("generic XDP as the driver refuses (%v)", err.(*Error).Err)
	}
	f.generic = true
	b.program, err = newProgram(f)
	return mode, err
}

// openQueues opens the sockets, in the fastest mode that all queues support.
func (b *base) openQueues(o *Options, f *filter) ([]*queue, error) {
	how := binding{netif: f.netif.Index, modes: []uint16{unix.XDP_ZEROCOPY, unix.XDP_COPY}, busyPoll: o.BusyPoll}
	if b.program.layout.several {
		how.modes = []uint16{unix.XDP_ZEROCOPY | unix.XDP_USE_SG, unix.XDP_COPY | unix.XDP_USE_SG}
	}
	if o.Copy || f.generic {
		how.modes = how.modes[1:]
	}
	queues, err := b.openQueuesBy(&how, f.queues)
	if err != nil && len(queues) > 0 && queues[0].zeroCopy {
		closeAll(queues)
		b.mem.free()
		how.modes = how.modes[1:]
		queues, err = b.openQueuesBy(&how, f.queues)
	}
	return queues, err
}

// openQueuesBy opens the sockets of n queues. With an error it returns those that are open.
func (b *base) openQueuesBy(how *binding, n int) (queues []*queue, err error) {
	if b.mem, err = newUMEM(n, b.program.layout.chunk); err != nil {
		return nil, err
	}
	for id := range n {
		var first *queue
		if id > 0 {
			first = queues[0]
		}
		q, err := openQueue(id, b.mem, first, how)
		if err != nil {
			return queues, err
		}
		queues = append(queues, q)
	}
	return queues, nil
}

// describe describes the mode in a few words.
func (b *base) describe(o *Options, mode string, queues []*queue) string {
	note := mode + ", copy mode"
	if queues[0].zeroCopy {
		note = mode + ", zero copy"
	}
	note += fmt.Sprintf(", %d queue", len(queues))
	if len(queues) > 1 {
		note += "s"
	}
	if b.program.layout.several {
		note += ", multi-buffer"
	}
	if o.BusyPoll > 0 {
		note += ", busy polling"
	}
	if mtu := b.kernel.Caps().MTU; b.program.layout.mtu < mtu {
		note += fmt.Sprintf(", MTU %d of %d because a frame has to fit the chunks", b.program.layout.mtu, mtu)
	}
	return note
}

// Caps says what the link can do.
func (c *conn) Caps() link.Caps { return c.caps }

// Deadline returns driver.Never.
func (c *conn) Deadline() ib.Instant { return driver.Never }

// Stats returns the counters. Those of the packet socket, which is shared, are added in the main link.
func (c *conn) Stats() link.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed.Load() {
		c.stats.RxOverflow = 0
		for _, q := range c.queues {
			c.stats.RxOverflow += q.overflow()
		}
	}
	s := c.stats
	if !c.main {
		return s
	}
	k := c.kernel.Stats()
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

// retryTime is the interval at which the device is offered frames that it has not taken.
const retryTime = time.Millisecond

// Wait returns early if frames wait in a TX ring; Recv and Send offer them again.
func (c *conn) Wait(d time.Duration, writable bool) error {
	c.mu.Lock()
	if (d < 0 || d > retryTime) && slices.ContainsFunc(c.queues, (*queue).waiting) {
		d = retryTime
	}
	c.mu.Unlock()
	return c.wait.Wait(d, writable)
}

// Wake ends a Wait.
func (c *conn) Wake() { c.wait.Wake() }

// Watch makes fd end Wait, too.
func (c *conn) Watch(fd int) error { return c.wait.Watch(fd) }

// Join makes the host a member of the group. Its frames come through the kernel.
func (c *conn) Join(g ib.GID) error { return c.kernel.Join(g) }

// Leave ends the membership.
func (c *conn) Leave(g ib.GID) error { return c.kernel.Leave(g) }

// AddLocal makes the program redirect packets to the address. The program is shared, so only the main link's call does
// it.
func (c *conn) AddLocal(g ib.GID) error {
	return c.local.Add(g, func() error {
		if c.main {
			return c.kernel.AddLocalWith(g, c.refilter)
		}
		return nil
	})
}

// RemoveLocal makes the program pass packets to the address to the kernel.
func (c *conn) RemoveLocal(g ib.GID) error {
	return c.local.Remove(g, func() error {
		if c.main {
			return c.kernel.RemoveLocalWith(g, c.refilter)
		}
		return nil
	})
}

// refilter replaces the program by one for other addresses.
func (b *base) refilter(local []ib.GID) error {
	f := b.filter
	f.local = local
	if err := b.program.replace(&f); err != nil {
		return err
	}
	b.filter = f
	return nil
}

// Close ends a Wait that is under way, and waits for it.
func (c *conn) Close() error {
	c.closed.Store(true)
	c.wait.Shut()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed.Do(c.free)
	return nil
}

// free closes the link's sockets and, for the last link, everything else.
func (c *conn) free() {
	c.local.Shut()
	for _, q := range c.queues {
		if len(q.lent) > 0 {
			c.lent.Store(true)
		}
	}
	if c.users.Add(-1) == 0 {
		c.base.free(c.queues)
	} else {
		closeAll(c.queues)
	}
	c.queues = nil
	c.closeOwnWaiter()
}

// free removes the program from the interface first, then closes the last sockets, and releases the port last. Frames
// in the UMEM that Recv has returned may still be in use; then the UMEM stays until none of the links is reachable.
func (b *base) free(last []*queue) {
	if b.program != nil {
		b.program.close()
	}
	closeAll(last)
	switch mem := b.mem; {
	case mem == nil:
	case b.lent.Load():
		runtime.AddCleanup(b, (*umem).free, mem)
	default:
		mem.free()
	}
	b.mem = nil
	_ = b.kernel.Close()
}

func closeAll(queues []*queue) {
	for _, q := range queues {
		q.close()
	}
}
