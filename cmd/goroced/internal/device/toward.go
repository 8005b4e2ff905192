package device

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link"
)

// Toward returns the local address that packets to a host leave from. The kernel chooses it by the route; nothing is
// sent. The result is invalid if host is "" or has no address, if there is no route to it, or if ctx has ended.
func Toward(ctx context.Context, remote string) netip.Addr {
	if remote == "" {
		return netip.Addr{}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(remote, strconv.Itoa(link.Port)))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// Holding returns the name of the network interface that has an address, "" if none has it.
func Holding(a netip.Addr) string {
	list, err := host.Interfaces()
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(list, func(f host.Interface) bool { return slices.Contains(f.Addrs, a) })
	if i < 0 {
		return ""
	}
	return list[i].Name
}
