//go:build linux

package main

import (
	"context"
	"net"
	"net/netip"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
)

// cmDeviceFlags are deviceFlags for subcommands that connect by address. They have no -d, which is another option of
// librdmacm's tools, and they find the device by address, as those tools do.
type cmDeviceFlags struct {
	Device string       `aliases:"ib-dev" default:"soft" placeholder:"DEV" help:"soft, or a name that devinfo -l lists (default ${default}); the connections of an RNIC belong to the kernel." group:"Device"`
	Link   string       `default:"auto" enum:"auto,udp,rawsock,afxdp" help:"Link of a software device: ${enum}." group:"Device"`
	NetIf  string       `name:"netif" placeholder:"IF" help:"Network interface whose addresses to use (default: the address that the other options name or, at a client, that the way to the server begins with; failing that, the interface of the default route)." group:"Device"`
	Addr   []netip.Addr `placeholder:"IP" help:"Local addresses to use instead of --netif." group:"Device"`
	Shards int          `placeholder:"N" help:"Number of threads of a software device, a power of two (default: one for four processors, at most 4)." group:"Device"`

	daemonFlags
}

// with opens the device and calls use. local is the local address of the options, remote the host to connect to; either
// may be "".
func (f *cmDeviceFlags) with(ctx context.Context, local, remote string, faults wrap.FaultConfig, pcap string,
	use func(ib.Device) error) error {
	d := deviceFlags(*f)
	if !d.asked() && d.Device == device.Soft && d.NetIf == "" && len(d.Addr) == 0 {
		d.Addr = findAddr(local, remote)
	}
	return d.with(ctx, faults, pcap, use)
}

// findAddr returns the local address to use, or none if it is not known. The kernel chooses it by the route to remote;
// nothing is sent.
func findAddr(local, remote string) []netip.Addr {
	if a, err := netip.ParseAddr(local); err == nil && !a.IsUnspecified() {
		return []netip.Addr{a}
	}
	if remote == "" {
		return nil
	}
	conn, err := net.Dial("udp", net.JoinHostPort(remote, "4791"))
	if err != nil {
		return nil
	}
	defer conn.Close()
	return []netip.Addr{conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()}
}
