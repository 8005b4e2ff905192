package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rnic"
	"github.com/goroce/goroce/tests/conformance"
)

// deviceFlags select a device and its address.
type deviceFlags struct {
	device, gid, kind string
	memory            string
	flushRxe          bool
}

func (d *deviceFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&d.device, "device", "", "rnic:NAME, udp:ADDR[,ADDR...], rawsock:IFACE or daemon:SOCKET")
	flags.StringVar(&d.gid, "gid", "",
		"the GID to speak from: its index, or its IP address (default the first that is not link-local)")
	flags.BoolVar(&d.flushRxe, "flush-rxe", false,
		"udp and rawsock: the peer is rdma_rxe, which has an ICRC of its own for FLUSH")
	flags.StringVar(&d.memory, "memory", "memfd",
		"daemon: where the memory lies that is registered: memfd, which the daemon maps, or process")
	flags.StringVar(&d.kind, "kind", "",
		"the kind that deviations go by (default goroce, or that of the RNIC: rdma_rxe/6.1)")
}

// open opens the device.
func (d *deviceFlags) open(ctx context.Context) (p conformance.Party, err error) {
	scheme, name, _ := strings.Cut(d.device, ":")
	p.Kind = "goroce"
	switch scheme {
	case "rnic":
		p.Kind = rnicKind(name)
		p.Device, err = rnic.Open(name)
	case "udp":
		p.Device, err = openSoft(host.Options{Link: "udp", FlushRxe: d.flushRxe}, name)
	case "rawsock":
		p.Device, err = openSoft(host.Options{Link: "rawsock", NetIf: name, FlushRxe: d.flushRxe}, "")
	case "daemon":
		p, err = d.openDaemon(ctx, name)
	default:
		err = fmt.Errorf("device %q: rnic:NAME, udp:ADDR[,ADDR...], rawsock:IFACE or daemon:SOCKET: %w", d.device,
			ib.ErrInvalid)
	}
	if err != nil {
		return p, err
	}
	if d.kind != "" {
		p.Kind = d.kind
	}
	if p.GIDIndex, err = d.row(p.Device); err != nil {
		p.Device.Close()
	}
	return p, err
}

// arenaSize is more than the cases register at a time.
const arenaSize = 256 << 20

// openDaemon opens the daemon's device at a socket.
func (d *deviceFlags) openDaemon(ctx context.Context, socket string) (p conformance.Party, err error) {
	p.Kind = "goroce"
	switch d.memory {
	case "memfd":
		buf, err := client.Alloc(arenaSize)
		if err != nil {
			return p, err
		}
		p.Alloc = conformance.NewArena(buf).Alloc
	case "process":
	default:
		return p, fmt.Errorf("memory %q: memfd or process: %w", d.memory, ib.ErrInvalid)
	}
	dev, err := client.Dial(ctx, client.Options{Socket: socket})
	if err == nil { // otherwise the interface would hold a nil *client.Device
		p.Device = dev
	}
	return p, err
}

// openSoft opens a software device. It exists because a nil roce.Device in an interface would not equal nil.
func openSoft(o host.Options, addrs string) (ib.Device, error) {
	for _, s := range strings.Split(addrs, ",") {
		if s == "" {
			continue
		}
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return nil, err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	dev, err := host.Open(o)
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// rnicKind returns the kind of an RNIC for deviations; that of rdma_rxe contains the kernel version.
func rnicKind(name string) string {
	if !strings.HasPrefix(name, "rxe") {
		return "rnic"
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "rdma_rxe"
	}
	version := strings.SplitN(string(bytes.TrimSpace(release)), ".", 3)
	return "rdma_rxe/" + strings.Join(version[:min(2, len(version))], ".")
}

// row returns the row of the GID table for the flag.
func (d *deviceFlags) row(dev ib.Device) (int, error) {
	if n, err := strconv.Atoi(d.gid); err == nil {
		return n, nil
	}
	gids, err := dev.GIDs(1)
	if err != nil {
		return 0, err
	}
	for _, g := range gids {
		addr := g.GID.Addr()
		if d.gid == addr.String() || d.gid == "" && !addr.IsLinkLocalUnicast() {
			return g.Index, nil
		}
	}
	return 0, fmt.Errorf("GID %q is not in the table of %s, which has %v: %w", d.gid, dev.Attr().Name, gids,
		ib.ErrInvalid)
}
