package neigh

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// neighbour is an entry of the kernel's neighbour table.
type neighbour struct {
	addr   netip.Addr
	mac    [6]byte
	usable bool // packets may be sent to mac
	failed bool // the host does not answer, or the kernel has dropped the entry
}

// Neighbour states in which the MAC address can be used (NUD_VALID of linux/neighbour.h, without the states that have
// no address).
const usableStates = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE |
	netlink.NUD_PERMANENT | netlink.NUD_NOARP

// kernel has the netlink sockets of a table, in its network namespace.
type kernel struct {
	index   int
	ns      Namespace
	netlink *netlink.Handle
	probe4  int // UDP sockets to use without NTF_USE; -1 if none
	probe6  int

	updates <-chan neighbour // nil while there is no subscription
	stop    chan struct{}    // ends the subscription
}

func newKernel(index int) (k *kernel, err error) {
	k = &kernel{index: index, ns: CurrentNamespace(), probe4: probeSocket(unix.AF_INET, index),
		probe6: probeSocket(unix.AF_INET6, index)}
	if k.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		k.close()
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	k.subscribe()
	return k, nil
}

func (k *kernel) close() {
	k.unsubscribe()
	_, _ = unix.Close(k.probe4), unix.Close(k.probe6)
	if k.netlink != nil {
		k.netlink.Close()
	}
	k.ns.Close()
}

// unsubscribe ends the subscription, if there is one.
func (k *kernel) unsubscribe() {
	if k.updates != nil {
		close(k.stop)
		k.updates = nil
	}
}

// subscribe sets updates to a channel of changes, if it is nil. If there are too many changes at once, the kernel ends
// the subscription, which closes the channel.
func (k *kernel) subscribe() {
	if k.updates != nil {
		return
	}
	raw, stop, out := make(chan netlink.NeighUpdate), make(chan struct{}), make(chan neighbour)
	err := k.ns.Do(func() error { return netlink.NeighSubscribe(raw, stop) })
	if err != nil {
		return // the table is refreshed anyway
	}
	k.updates, k.stop = out, stop
	go func() {
		defer close(out)
		for u := range raw {
			n, ok := k.neighbour(&u.Neigh)
			if !ok {
				continue
			}
			if u.Type == unix.RTM_DELNEIGH {
				n.usable, n.failed = false, true
			}
			select {
			case out <- n:
			case <-stop: // drain raw, so that its sender can return
			}
		}
	}()
}

// neighbour converts n. ok is false if n is on another interface.
func (k *kernel) neighbour(n *netlink.Neigh) (neighbour, bool) {
	addr, ok := addrOf(n.IP)
	if !ok || n.LinkIndex != k.index {
		return neighbour{}, false
	}
	out := neighbour{addr: addr, failed: n.State&netlink.NUD_FAILED != 0}
	if len(n.HardwareAddr) == len(out.mac) {
		out.usable = n.State&usableStates != 0
		copy(out.mac[:], n.HardwareAddr)
	}
	return out, true
}

// list returns the kernel's neighbours of the interface.
func (k *kernel) list(is4 bool) []neighbour {
	family := netlink.FAMILY_V6
	if is4 {
		family = netlink.FAMILY_V4
	}
	have, err := k.netlink.NeighList(k.index, family)
	if err != nil {
		return nil // an update or the next refresh will follow
	}
	var list []neighbour
	for i := range have {
		if n, ok := k.neighbour(&have[i]); ok {
			list = append(list, n)
		}
	}
	return list
}

// nextHop returns the next hop of packets to dst.
func (k *kernel) nextHop(dst netip.Addr) (netip.Addr, error) {
	found, err := k.netlink.RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{OifIndex: k.index})
	if err != nil {
		return netip.Addr{}, err
	}
	if len(found) > 0 {
		if gw := gateway(&found[0]); gw.IsValid() {
			return gw, nil
		}
	}
	return dst, nil
}

// resolve makes the kernel find hop's MAC address, or confirm an old one, as if it had a packet to send. Without
// CAP_NET_ADMIN it really sends a packet.
func (k *kernel) resolve(hop netip.Addr) {
	err := k.netlink.NeighSet(&netlink.Neigh{LinkIndex: k.index, IP: hop.AsSlice(), Flags: netlink.NTF_USE})
	if err == nil {
		return
	}
	// An empty datagram to the discard service (RFC 863).
	if hop.Is4() {
		_ = unix.Sendto(k.probe4, nil, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Port: 9, Addr: hop.As4()})
		return
	}
	_ = unix.Sendto(k.probe6, nil, unix.MSG_DONTWAIT, &unix.SockaddrInet6{Port: 9, Addr: hop.As16(),
		ZoneId: uint32(k.index)})
}

// probeSocket returns a socket that sends by one interface, and only to hosts on the link, or -1.
func probeSocket(family, index int) int {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, index)
	if family == unix.AF_INET {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, 1)
	} else {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
	}
	return fd
}
