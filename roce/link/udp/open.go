package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
	"github.com/goroce/goroce/roce/link/internal/local"
	"github.com/goroce/goroce/roce/link/internal/sock"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/neigh"
)

// Offload says whether runs are passed to the kernel as a whole.
type Offload uint8

// Offload settings.
const (
	OffloadAuto Offload = iota // if kernel and interface support it
	OffloadOn                  // opening fails if they do not
	OffloadOff                 // never
)

// DefaultRecvBuffer is Options.RecvBuffer if that is 0.
const DefaultRecvBuffer = 4 << 20

// Options for Open. The zero value is ready.
type Options struct {
	Offload Offload
	// RecvBuffer is the size of each socket's receive buffer in bytes. Without privileges it is limited to
	// net.core.rmem_max; Caps.Note tells the actual size.
	RecvBuffer int
	// OnError, if not nil, is told which peers cannot be reached, and why, as ICMP says: ECONNREFUSED if their port
	// 4791 is closed, EHOSTUNREACH, ENETUNREACH, EACCES. It is called during Recv, Send and Wait, by their goroutine,
	// and must not call the link. Anybody may have forged the message.
	OnError func(peer ib.GID, errno syscall.Errno)
}

// Limits of a run. Older kernels cut into at most 64 segments. 65,000 bytes leave room for the headers in 64 KiB, the
// limit of segmenting devices.
const (
	runFrames = 64
	runBytes  = 65000
)

// conn is a link.
type conn struct {
	caps       link.Caps
	offload    bool
	recvBuffer int
	onError    func(ib.GID, syscall.Errno)
	ns         neigh.Namespace // network namespace of the sockets
	opened     []netip.Addr    // addresses of Open, with their zones
	shard      int
	claim      *claim
	local      local.Set
	poller     *sock.Poller
	closed     atomic.Bool

	// sockets guards socks and rx.socks. Send and Recv hold it, and so does any goroutine that adds or removes sockets.
	sockets sync.Mutex
	socks   []*socket // one for each local address

	// mu is held during calls of the owner. Close takes it after all calls have been told to end.
	mu    sync.Mutex
	tx    *sock.Outbox
	asks  sync.WaitGroup // goroutines of findShared
	rx    rxState
	stats link.Stats
}

// socket is bound to port 4791 of one address, or of a multicast group.
type socket struct {
	fd    int
	local ib.GID
	is4   bool
	index int    // of the interface
	drops uint32 // last value of SO_RXQ_OVFL
	gauge sock.Gauge

	shared   atomic.Pointer[neigh.Shared]
	asking   atomic.Bool // a goroutine asks for shared
	sharedAt ib.Instant  // when shared was asked for
	ownOnly  bool        // it sends by its interface only (sendBy)
}

// Open opens a link on the addresses, which this host must have. An IPv6 link-local address needs its zone, unless only
// one interface has it. If another program has the port, the error is a *port.Error.
func Open(addrs []netip.Addr, o Options) (link.Link, error) {
	links, err := OpenShards(addrs, o, 1)
	if err != nil {
		return nil, err
	}
	return links[0], nil
}

func (c *conn) open(addrs []netip.Addr, o Options) error {
	var fds []int
	var dev device
	granted := 0
	for i, a := range addrs {
		d, err := findDevice(a)
		if err != nil {
			return err
		}
		if i == 0 {
			dev = d
		}
		dev.MTU = min(dev.MTU, d.MTU)
		dev.checksums = dev.checksums && d.checksums
		s, err := c.openSocket(a, d.Index)
		if err != nil {
			return err
		}
		c.socks = append(c.socks, s)
		c.rx.socks = append(c.rx.socks, s)
		c.caps.Local = append(c.caps.Local, s.local)
		fds = append(fds, s.fd)
		granted = s.setRecvBuffer(o.RecvBuffer)
	}
	why := ""
	if c.offload, why = c.decideOffload(o.Offload, dev, addrs[0]); !c.offload && o.Offload == OffloadOn {
		return fmt.Errorf("%v: segmentation offload is not possible: %s; use OffloadAuto", addrs[0], why)
	}
	c.caps = link.Caps{
		Name:         "udp",
		NetIf:        dev.Name,
		MTU:          dev.MTU,
		Local:        c.caps.Local,
		RunFrames:    runFrames,
		RunBytes:     runBytes,
		ID:           link.IDIndex,
		Segments:     c.offload,
		Keeps:        true,
		FixedSrcPort: link.Port,
		Note:         fmt.Sprintf("plain UDP sockets, receive buffer %d KiB", granted>>10),
	}
	if !c.offload {
		c.caps.ID = link.IDZero
		c.caps.Note += ", frame by frame: " + why
	}
	c.local.Init("udp", c.caps.Local)
	c.tx = sock.NewOutbox(txBatch, 1, txControl)
	c.rx.init()
	var err error
	c.poller, err = sock.NewPoller(fds)
	return err
}

// openSocket returns a socket that is bound to the port at a, an address of the interface with that index.
func (c *conn) openSocket(a netip.Addr, index int) (*socket, error) {
	s, err := newSocket(a, index)
	if err != nil {
		return nil, err
	}
	if err := c.prepare(s, a); err != nil {
		_ = unix.Close(s.fd)
		return nil, err
	}
	_ = s.askShared() // without an answer it sends as the routes say
	c.claim.take(a)
	return s, nil
}

// prepare sets the options of a socket for address a and binds it. The first shard's socket is
// bound without SO_REUSEPORT, which fails if the port is taken, and shares the port afterwards.
// With the last shard's socket the kernel is told how to choose among the sockets (steer).
func (c *conn) prepare(s *socket, a netip.Addr) error {
	if err := s.sendGroupsBy(s.index); err != nil {
		return fmt.Errorf("%v: %w", a, err)
	}
	first, last := c.shard == 0, c.shard == c.claim.shards-1
	var err error
	if !first {
		err = port.Share(s.fd)
	}
	if err == nil {
		err = bind(s, a)
	}
	if err == nil && first && !last {
		err = port.Share(s.fd)
	}
	if err == nil && last && !first {
		err = s.steer(c.claim.shards)
	}
	return err
}

// bind binds a socket to the port at a.
func bind(s *socket, a netip.Addr) error {
	err := unix.Bind(s.fd, sockaddr(a, link.Port, s.index))
	if errors.Is(err, unix.EADDRINUSE) {
		return port.Taken(a)
	}
	if err != nil {
		return fmt.Errorf("bind %v: %w (is it an address of this host?)", netip.AddrPortFrom(a, link.Port), err)
	}
	return nil
}

// closeSocket closes the socket of an address or a group. It releases the port of an address only after the socket is
// closed.
func (c *conn) closeSocket(s *socket) {
	_ = unix.Close(s.fd)
	if !group.Is(&s.local) {
		c.claim.drop(s.local)
	}
}

// newSocket returns a socket for a on the interface with that index. Its options are set, and it is not bound.
func newSocket(a netip.Addr, index int) (*socket, error) {
	domain, options := unix.AF_INET6, options6
	if a.Is4() {
		domain, options = unix.AF_INET, options4
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := setOptions(fd, options); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%v: %w", a, err)
	}
	return &socket{fd: fd, local: ib.GIDFromAddr(a), is4: a.Is4(), index: index}, nil
}

// setRecvBuffer sets the size of the receive buffer and returns what the kernel has granted.
func (s *socket) setRecvBuffer(n int) (granted int) {
	granted = sock.SetRecvBuffer(s.fd, n)
	s.gauge = sock.NewGauge(s.fd)
	return granted
}

func sockaddr(a netip.Addr, port, index int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	}
	sa := &unix.SockaddrInet6{Port: port, Addr: a.As16()}
	if a.IsLinkLocalUnicast() || a.IsMulticast() {
		sa.ZoneId = uint32(index)
	}
	return sa
}

// ipv6FlowInfo is IPV6_FLOWINFO of linux/in6.h, which package unix lacks.
const ipv6FlowInfo = 11

// option is a socket option that Open sets to value.
type option struct {
	name           string
	level, opt, on int
	optional       bool // not an error if the kernel does not have it
}

var options4 = []option{
	{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, false},
	{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, defaultHops, false},
	{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, defaultHops, false},
	{"IP_RECVTTL", unix.IPPROTO_IP, unix.IP_RECVTTL, 1, false},
	{"IP_RECVTOS", unix.IPPROTO_IP, unix.IP_RECVTOS, 1, false},
	{"IP_RECVERR", unix.IPPROTO_IP, unix.IP_RECVERR, 1, false},
	{"UDP_GRO", unix.IPPROTO_UDP, unix.UDP_GRO, 1, true},
	{"SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, true},
}

var options6 = []option{
	{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, false},
	{"IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, false},
	{"IPV6_DONTFRAG", unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1, false},
	{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, defaultHops, false},
	{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, defaultHops, false},
	{"IPV6_RECVHOPLIMIT", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, false},
	{"IPV6_RECVTCLASS", unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, false},
	{"IPV6_RECVERR", unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1, false},
	{"IPV6_FLOWINFO", unix.IPPROTO_IPV6, ipv6FlowInfo, 1, true},
	// rdma_rxe and NICs send UDP checksum 0, which IPv6 sockets drop by default.
	{"UDP_NO_CHECK6_RX", unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, false},
	{"UDP_GRO", unix.IPPROTO_UDP, unix.UDP_GRO, 1, true},
	{"SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1, true},
}

func setOptions(fd int, options []option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.on); err != nil && !o.optional {
			return fmt.Errorf("set %s to %d: %w", o.name, o.on, err)
		}
	}
	return nil
}

func (c *conn) Caps() link.Caps { return c.caps }

func (c *conn) Deadline() ib.Instant { return driver.Never }

func (c *conn) Stats() link.Stats { return c.stats }

func (c *conn) Wait(d time.Duration, writable bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return link.ErrClosed
	}
	err := c.poller.Wait(d, writable)
	if c.poller.Failed() {
		c.readAllErrors()
	}
	return err
}

func (c *conn) Wake() { c.poller.Wake() }

func (c *conn) Watch(fd int) error {
	c.poller.Add(fd)
	return nil
}

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
	c.local.Shut()
	c.sockets.Lock() // a Join may be running
	defer c.sockets.Unlock()
	if c.poller != nil {
		c.poller.Close()
	}
	for _, s := range c.rx.socks {
		c.closeSocket(s)
	}
	c.asks.Wait()
	c.ns.Close()
}
