//go:build linux

package main

import (
	"context"
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
	NetIf  string       `name:"netif" placeholder:"IF" help:"Network interface whose addresses to use (default: the address that the other options name; else, at a client, the local address of the route to the server; else the interface of the default route)." group:"Device"`
	Addr   []netip.Addr `placeholder:"IP" help:"Local addresses to use instead of --netif." group:"Device"`
	Shards int          `placeholder:"N" help:"Number of threads of a software device, a power of two (default: one for each four processors, at most 4)." group:"Device"`

	daemonFlags
	local string // see deviceFlags
}

// with opens the device and calls use. local is the local address of the options, remote the host to connect to; either
// may be "".
func (f *cmDeviceFlags) with(ctx context.Context, local, remote string, faults wrap.FaultConfig, pcap string,
	use func(ib.Device, device.Here) error) error {
	d := deviceFlags(*f)
	if a, err := netip.ParseAddr(local); err == nil && !a.IsUnspecified() && d.open() {
		d.Addr, d.local = []netip.Addr{a}, local
	}
	d.toward(ctx, remote, false)
	return d.with(ctx, faults, pcap, func(dev ib.Device) error { return use(dev, d.here(dev)) })
}
