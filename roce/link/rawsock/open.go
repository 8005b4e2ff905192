package rawsock

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
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/sock"
	"github.com/goroce/goroce/roce/neigh"
)

// DefaultRecvBuffer is Options.RecvBuffer if that is 0.
const DefaultRecvBuffer = 4 << 20

// Options for Open. The zero value is fine.
type Options struct {
	// RecvBuffer is the receive buffer to ask for, in bytes. Without CAP_NET_ADMIN
	// there is at most net.core.rmem_max; Caps.Note says how much it is.
	RecvBuffer int
}

// Limits of a run, which leaves frame by frame but in few system calls.
const (
	runFrames = 64
	runBytes  = 65000
)

// conn is the link.
type conn struct {
	caps       link.Caps
	netif      neigh.NetIf
	recvBuffer int
	ns         neigh.Namespace // where the sockets are
	fd         int             // the packet socket that sends, and receives what is for the addresses
	members    members
	guards     []guard
	peers      *neigh.Table
	poller     *sock.Poller
	closed     atomic.Bool

	// mu is held by the owner's calls; Close takes it once they are told to end.
	mu    sync.Mutex
	tx    txState
	held  holding
	rx    rxState
	stats link.Stats
}

// Open opens a link on the addresses, which one Ethernet interface must hold; an
// IPv6 link-local address carries its zone unless only one interface has it. If
// another program has the port, the error is a *port.Error; without CAP_NET_RAW it
// matches fs.ErrPermission.
func Open(addrs []netip.Addr, o Options) (link.Link, error) {
	if len(addrs) == 0 {
		return nil, errors.New("rawsock link: no address given")
	}
	if o.RecvBuffer == 0 {
		o.RecvBuffer = DefaultRecvBuffer
	}
	c := &conn{recvBuffer: o.RecvBuffer, ns: neigh.CurrentNamespace(), fd: -1, members: members{fd: -1, joined: make(map[ib.GID]int)}}
	if err := c.open(addrs, o); err != nil {
		c.free()
		return nil, fmt.Errorf("rawsock link: %w", err)
	}
	return c, nil
}

func (c *conn) open(addrs []netip.Addr, o Options) (err error) {
	if c.netif, err = commonNetIf(addrs); err != nil {
		return err
	}
	var local []ib.GID
	for _, a := range addrs {
		local = append(local, ib.GIDFromAddr(a))
	}
	// The packet socket comes first: if we may not have one, nothing else matters.
	if c.fd, err = packetSocket(append(passing(unix.PACKET_HOST), ours(local)...), true); err != nil {
		return err
	}
	for _, a := range addrs {
		g, err := newGuard(a, c.netif.Index)
		if err != nil {
			return err
		}
		c.guards = append(c.guards, g)
	}
	if c.poller, err = sock.NewPoller([]int{c.fd}); err != nil {
		return err
	}
	if c.peers, err = neigh.NewTable(c.netif, c.learned); err != nil {
		return err
	}
	granted := sock.SetRecvBuffer(c.fd, o.RecvBuffer)
	c.caps = link.Caps{
		Name:      "rawsock",
		NetIf:     c.netif.Name,
		MTU:       c.netif.MTU,
		Local:     local,
		RunFrames: runFrames,
		RunBytes:  runBytes,
		ID:        link.IDFree,
		Note:      fmt.Sprintf("packet socket, receive buffer %d KiB", granted>>10),
	}
	c.tx.init()
	c.rx.init()
	return bind(c.fd, &c.netif)
}

// bind ties a packet socket to an interface. From here on frames arrive.
func bind(fd int, n *neigh.NetIf) error {
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_ALL), Ifindex: n.Index}); err != nil {
		return fmt.Errorf("bind packet socket to %s: %w", n.Name, err)
	}
	return nil
}

func bigEndian16(v uint16) uint16 { return v<<8 | v>>8 }

// commonNetIf returns the interface that holds all addresses.
func commonNetIf(addrs []netip.Addr) (neigh.NetIf, error) {
	var n neigh.NetIf
	for i, a := range addrs {
		have, err := neigh.Holding(a)
		if err != nil {
			return n, err
		}
		if i > 0 && have.Index != n.Index {
			return n, fmt.Errorf("%v is on %s and %v on %s; the addresses of one link must be on one interface (link udp has no such limit)",
				addrs[0], n.Name, a, have.Name)
		}
		n = have
	}
	if !n.Ethernet {
		return n, fmt.Errorf("%s is no Ethernet interface; use link udp there", n.Name)
	}
	return n, nil
}

// packetSocket returns a socket that is not bound yet. It shows what the filter
// accepts of what passes the interface, or of what arrives by it only.
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

func (c *conn) Caps() link.Caps { return c.caps }

func (c *conn) Deadline() ib.Instant { return ib.Never }

// Stats asks the kernel what it dropped since last asked.
func (c *conn) Stats() link.Stats {
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

func (c *conn) Wait(d time.Duration, writable bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	return c.poller.Wait(d, writable)
}

func (c *conn) Wake() { c.poller.Wake() }

// Close ends a Wait that is under way, and waits for it.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	c.poller.Shut()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free()
	return nil
}

func (c *conn) free() {
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
