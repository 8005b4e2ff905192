// Package packet is the link over a packet socket. Package rawsock is its public form; package afxdp uses it for
// packets that go through the kernel.
//
// Files: packet.go opens the sockets, guard.go those that keep the kernel from answering, filter.go selects frames,
// offload.go detects segmentation offload, vnet.go uses it, send.go and recv.go move runs, hold.go holds those whose
// MAC address is not known yet, local.go adds and removes addresses, group.go joins groups.
package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/sock"
	"github.com/goroce/goroce/roce/neigh"
)

// DefaultRecvBuffer is Options.RecvBuffer if that is 0.
const DefaultRecvBuffer = 4 << 20

// Options for Open.
type Options struct {
	Name       string // name of the driver, for Caps.Name and errors
	Offload    Offload
	RecvBuffer int // see rawsock.Options
}

// Limits of a run. 65,000 bytes leave room for the headers in 64 KiB, the limit of an IP packet, which a run is when it
// is sent.
const (
	runFrames = 64
	runBytes  = 65000
)

// Conn is a link.
type Conn struct {
	caps       link.Caps
	offload    bool
	netif      neigh.NetIf
	recvBuffer int
	ns         neigh.Namespace // network namespace of the sockets
	fd         int             // packet socket that sends, and receives packets to the addresses
	members    members
	local      local.Set
	guards     map[ib.GID]guard // guarded by local's lock
	peers      *neigh.Table
	poller     *sock.Poller
	closed     atomic.Bool
	freed      sync.Once

	// waits is held during Wait, mu during the owner's other calls, so that Stats need not wait for Wait. Close takes
	// both after all calls have been told to end.
	waits sync.Mutex
	mu    sync.Mutex
	tx    txState
	held  holding
	rx    rxState
	stats link.Stats
}

// Open opens a link on the addresses; see rawsock.Open.
func Open(addrs []netip.Addr, o Options) (*Conn, error) {
	if o.RecvBuffer == 0 {
		o.RecvBuffer = DefaultRecvBuffer
	}
	c := &Conn{recvBuffer: o.RecvBuffer, ns: neigh.CurrentNamespace(), fd: -1, guards: make(map[ib.GID]guard),
		members: members{fd: -1, joined: make(map[ib.GID]int)}}
	c.caps.Name = o.Name
	if err := c.open(addrs, o.Offload); err != nil {
		c.free()
		return nil, fmt.Errorf("%s link: %w", o.Name, err)
	}
	return c, nil
}

func (c *Conn) open(addrs []netip.Addr, want Offload) (err error) {
	if len(addrs) == 0 {
		return errors.New("no address given")
	}
	if c.netif, err = commonNetIf(addrs); err != nil {
		return err
	}
	var gids []ib.GID
	for _, a := range addrs {
		gids = append(gids, ib.GIDFromAddr(a))
	}
	c.local.Init(c.caps.Name, gids)
	// The packet socket is opened first: without the right to have one, nothing else matters.
	if c.fd, err = packetSocket(append(passing(unix.PACKET_HOST), ours(gids)...), true); err != nil {
		return err
	}
	for i, a := range addrs {
		g, err := newGuard(a, c.netif.Index)
		if err != nil {
			return err
		}
		c.guards[gids[i]] = g
	}
	if c.poller, err = sock.NewPoller([]int{c.fd}); err != nil {
		return err
	}
	if c.peers, err = neigh.NewTable(c.netif, c.learned); err != nil {
		return err
	}
	why := noOffload(want)
	if why != nil && want == OffloadOn {
		return fmt.Errorf("segmentation offload is not possible: %w; use OffloadAuto", why)
	}
	c.offload = why == nil
	granted := sock.SetRecvBuffer(c.fd, c.recvBuffer)
	c.caps = link.Caps{
		Name:      c.caps.Name,
		NetIf:     c.netif.Name,
		MTU:       c.netif.MTU,
		Local:     gids,
		RunFrames: runFrames,
		Segments:  c.offload,
		RunBytes:  runBytes,
		Keeps:     true,
		ID:        link.IDFree,
		Note:      fmt.Sprintf("packet socket, receive buffer %d KiB", granted>>10),
	}
	if c.offload {
		c.caps.Note += ", segmentation offload"
	} else {
		c.caps.Note += fmt.Sprintf(", frame by frame: %v", why)
	}
	c.tx.init()
	c.rx.init()
	c.rx.gauges[0] = sock.NewGauge(c.fd)
	return bind(c.fd, &c.netif)
}

// bind binds a packet socket to an interface. From then on it receives frames.
func bind(fd int, n *neigh.NetIf) error {
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_ALL),
		Ifindex: n.Index}); err != nil {
		return fmt.Errorf("bind packet socket to %s: %w", n.Name, err)
	}
	return nil
}

func bigEndian16(v uint16) uint16 { return v<<8 | v>>8 }

// commonNetIf returns the interface that has all addresses.
func commonNetIf(addrs []netip.Addr) (neigh.NetIf, error) {
	var n neigh.NetIf
	for i, a := range addrs {
		have, err := neigh.Holding(a)
		if err != nil {
			return n, err
		}
		if i > 0 && have.Index != n.Index {
			return n,
				fmt.Errorf("%v is on %s and %v on %s; the addresses of one link must be on one interface (link udp "+
					"has no such limit)",
					addrs[0], n.Name, a, have.Name)
		}
		n = have
	}
	if !n.Ethernet {
		return n, fmt.Errorf("%s is no Ethernet interface; use link udp there", n.Name)
	}
	return n, nil
}

// packetSocket returns a socket that is not bound yet. It receives frames that the filter accepts: all that pass the
// interface, or if arrivingOnly is set, only received ones.
func packetSocket(filter []bpf.Instruction, arrivingOnly bool) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", os.NewSyscallError("socket", err))
	}
	err = attach(fd, filter)
	if err == nil && arrivingOnly {
		err = setOption(fd, "PACKET_IGNORE_OUTGOING", unix.PACKET_IGNORE_OUTGOING)
	}
	if err == nil {
		err = setOption(fd, "PACKET_VNET_HDR", unix.PACKET_VNET_HDR)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	return fd, nil
}

func setOption(fd int, name string, opt int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, opt, 1); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

// Caps returns the capabilities of the link.
func (c *Conn) Caps() link.Caps { return c.caps }

// NetIf returns the interface that holds the addresses. It is for who has just opened c.
func (c *Conn) NetIf() neigh.NetIf { return c.netif }

// Beside adds sockets that send most frames: Wait waits for them, too, and with writable set for them instead of the
// packet socket. It must be called directly after Open.
func (c *Conn) Beside(socks []int) error {
	p, err := sock.NewPoller(socks)
	if err != nil {
		return err
	}
	c.poller.Close()
	c.poller = p
	p.Add(c.fd)
	return p.Wait(0, false) // consumes the Wake that Add counts as
}

// Deadline returns driver.Never: held runs wait for a MAC address, or for the next call.
func (c *Conn) Deadline() ib.Instant { return driver.Never }

// Stats adds what the kernel has dropped since the last call.
func (c *Conn) Stats() link.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members.mu.Lock()
	defer c.members.mu.Unlock()
	if !c.closed.Load() {
		for _, fd := range c.receivers() {
			if s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
				c.stats.RxOverflow += uint64(s.Drops)
			}
		}
	}
	return c.stats
}

// Wait waits for frames, for room to send, or for Wake.
func (c *Conn) Wait(d time.Duration, writable bool) error {
	c.waits.Lock()
	defer c.waits.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	return c.poller.Wait(d, writable)
}

// Wake ends a Wait.
func (c *Conn) Wake() { c.poller.Wake() }

// Watch makes fd end Wait, too.
func (c *Conn) Watch(fd int) error {
	c.poller.Add(fd)
	return nil
}

// Shut makes all calls but Close return link.ErrClosed, and returns when no Wait is running any more.
func (c *Conn) Shut() {
	c.closed.Store(true)
	c.poller.Shut()
	c.waits.Lock()
	defer c.waits.Unlock()
}

// Close calls Shut, waits for running calls, and frees everything.
func (c *Conn) Close() error {
	c.Shut()
	c.local.Shut() // without c.mu: AddLocal takes c.mu with local's lock held (bindTo)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed.Do(c.free)
	return nil
}

func (c *Conn) free() {
	if c.peers != nil {
		c.peers.Close()
	}
	if c.poller != nil {
		c.poller.Close()
	}
	for _, g := range c.guards {
		g.close()
	}
	c.members.close()
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	c.ns.Close()
}
