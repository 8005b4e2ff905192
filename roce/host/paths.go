package host

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
)

// paths finds the path MTU of connections: what the kernel's route has, which includes what ICMP has told about the
// destination before. Behind a router a packet of full size is sent first, so that ICMP can tell.
type paths struct {
	ns     neigh.Namespace // of the device's link
	routes *neigh.Routes   // in ns

	mu     sync.Mutex
	closed bool
	probed map[netip.Addr]probed // of destinations behind routers
	users  sync.WaitGroup
}

// probed is when a destination was probed, and the MTU of its route afterwards.
type probed struct {
	at  time.Time
	mtu int
}

const (
	// probeWait is how long the answer to a probe may take. A path that carries it does not answer.
	probeWait = 100 * time.Millisecond
	// probeSends is how often a probe without an answer is sent in that time: it, or the answer, may get lost.
	probeSends = 3
	// probeAgain is the age at which the result of a probe is not trusted any more. The kernel forgets what ICMP has
	// told after ten minutes (net.ipv4.route.mtu_expires), or at once when an interface or its addresses change: then
	// the route has a larger MTU than after the probe.
	probeAgain = time.Minute
	// maxProbed limits the memory of probes.
	maxProbed = 4096
	// maxNarrower limits how many routers may have a smaller MTU than the one before them.
	maxNarrower = 3
)

func newPaths() (*paths, error) {
	routes, err := neigh.NewRoutes()
	if err != nil {
		return nil, err
	}
	return &paths{ns: neigh.CurrentNamespace(), routes: routes, probed: map[netip.Addr]probed{}}, nil
}

// find is roce.Options.Route.
func (p *paths) find(src, dst netip.Addr, want ib.MTU) (mtu ib.MTU, errno int) {
	p.whileOpen(func() { mtu, errno = p.path(src, dst, want) })
	return mtu, errno
}

// source is roce.Options.Source.
func (p *paths) source(dst netip.Addr) (src netip.Addr) {
	p.whileOpen(func() {
		if r, err := p.routes.To(dst); err == nil {
			src = r.Src
		}
	})
	return src
}

// whileOpen calls f, unless the device is closed: then nothing is known.
func (p *paths) whileOpen(f func()) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.users.Add(1)
	p.mu.Unlock()
	defer p.users.Done()
	f()
}

// path is find while the device is open.
func (p *paths) path(src, dst netip.Addr, want ib.MTU) (ib.MTU, int) {
	r, err := p.routes.To(dst)
	if errors.Is(err, unix.ENETUNREACH) {
		return 0, int(unix.ENETUNREACH)
	}
	if err != nil {
		return 0, 0
	}
	if want > ib.MTUFor(minMTU) && r.Gateway.IsValid() && p.isDue(dst, r.MTU) {
		for range maxNarrower {
			mtu := min(want, ib.MTUFor(r.MTU))
			if mtu <= ib.MTUFor(minMTU) || !p.probe(src, dst, int(mtu)+headers) {
				break
			}
			if r, err = p.routes.To(dst); err != nil {
				return 0, 0
			}
		}
		p.found(dst, r.MTU)
	}
	return ib.MTUFor(r.MTU), 0
}

// minMTU is what every link of the Internet carries in practice: narrower ones are not looked for.
const minMTU = 1280

// headers is the room that ib.MTUFor leaves for headers.
const headers = 80

// isDue reports whether a destination, to which the route has that MTU, must be probed, and notes that it is.
func (p *paths) isDue(dst netip.Addr, mtu int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if last, ok := p.probed[dst]; ok && now.Sub(last.at) < probeAgain && mtu <= last.mtu {
		return false
	}
	if len(p.probed) >= maxProbed {
		clear(p.probed)
	}
	p.probed[dst] = probed{now, mtu}
	return true
}

// found notes the MTU of a route after a probe.
func (p *paths) found(dst netip.Addr, mtu int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.probed[dst]; ok {
		p.probed[dst] = probed{last.at, mtu}
	}
}

// close waits for running searches.
func (p *paths) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.users.Wait()
	p.ns.Close()
	p.routes.Close()
}

// probe sends an IP packet of that size to the peer's port 4791, not to be fragmented, and reports whether a router
// says that it is too long; the kernel then knows what fits. The packet is all zeros, which is a BTH to QP 0: every
// RoCEv2 device drops it.
func (p *paths) probe(src, dst netip.Addr, size int) (tooLong bool) {
	fd, ipHeader := -1, 0
	_ = p.ns.Do(func() error {
		fd, ipHeader = probeSocket(dst)
		return nil
	})
	if fd < 0 {
		return false
	}
	defer unix.Close(fd)
	if unix.Bind(fd, sockaddr(src, 0)) != nil || unix.Connect(fd, sockaddr(dst, link.Port)) != nil {
		return false
	}
	const udpHeader = 8
	packet := make([]byte, size-ipHeader-udpHeader)
	for range probeSends {
		if _, err := unix.Write(fd, packet); err != nil {
			return err == unix.EMSGSIZE
		}
		if isTooLong(fd, probeWait/probeSends) {
			return true
		}
	}
	return false
}

// isTooLong waits for the answer to a probe.
func isTooLong(fd int, wait time.Duration) bool {
	for end := time.Now().Add(wait); ; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(left/time.Millisecond)+1)
		if err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return false
		}
		errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		return err == nil && unix.Errno(errno) == unix.EMSGSIZE
	}
}

// probeSocket returns a socket for a probe, or -1, and the length of the IP header.
func probeSocket(dst netip.Addr) (fd, ipHeader int) {
	family, level, discover, how, header := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER,
		unix.IPV6_PMTUDISC_PROBE, 40
	if dst.Is4() {
		family, level, discover, how, header = unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
			unix.IP_PMTUDISC_PROBE, 20
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, 0
	}
	if unix.SetsockoptInt(fd, level, discover, how) != nil {
		_ = unix.Close(fd)
		return -1, 0
	}
	return fd, header
}

func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: port, Addr: a.As16()}
}
