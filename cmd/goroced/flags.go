//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/trace"
)

// deviceFlags select a device.
type deviceFlags struct {
	Device string       `short:"d" aliases:"ib-dev" default:"soft" placeholder:"DEV" help:"soft, a name that devinfo -l lists, or rnic:NAME for an RNIC (default ${default})." group:"Device"`
	Link   string       `default:"auto" enum:"auto,udp,rawsock,afxdp" help:"Link of a software device: ${enum}." group:"Device"`
	NetIf  string       `complete:"netifs" name:"netif" placeholder:"IF" help:"Network interface whose addresses to use (default: the local address of the route to the host to connect to; else the interface of the default route)." group:"Device"`
	Addr   []netip.Addr `placeholder:"IP" help:"Local addresses to use instead of --netif." group:"Device"`
	Shards int          `placeholder:"N" help:"Number of threads of a software device, a power of two (default: one for each four processors, at most 4)." group:"Device"`

	daemonFlags
	local string // the address of the device, if another flag than --addr names it
}

// daemonFlags select a daemon.
type daemonFlags struct {
	Daemon bool   `xor:"whose" help:"Use a device of the daemon (see --device). Without this and --own it is the daemon's if that has the address." group:"Device"`
	Own    bool   `xor:"whose" help:"Use a device of this program, whether there is a daemon or not." group:"Device"`
	Socket string `placeholder:"PATH" type:"path" help:"Socket of the daemon; implies --daemon (default: $$GOROCED_SOCKET, then the usual places)." group:"Device"`
}

// asked reports whether the device is to be one of a daemon.
func (f *daemonFlags) asked() bool { return f.Daemon || f.Socket != "" }

// open reports whether the flags leave the address of a software device open.
func (f *deviceFlags) open() bool {
	return !f.asked() && (f.Device == "" || f.Device == device.Soft) && f.NetIf == "" && len(f.Addr) == 0
}

// toward chooses the address of the device if the flags leave it open: the local address of the route to the remote
// host, if there is a remote host and a route to it. whole chooses all addresses of that address's interface, for
// subcommands with an option that is an index of the GID table.
func (f *deviceFlags) toward(ctx context.Context, remote string, whole bool) {
	if !f.open() {
		return
	}
	a := device.Toward(ctx, remote)
	if !a.IsValid() {
		return
	}
	if whole {
		f.NetIf = device.Holding(a)
	}
	if f.NetIf == "" {
		f.Addr = []netip.Addr{a}
	}
}

// with opens the device, calls use with it, and closes it. faults apply to its frames. If pcap is set, the capture file
// is complete when with returns.
func (f *deviceFlags) with(ctx context.Context, faults wrap.FaultConfig, pcap string,
	use func(ib.Device) error) (err error) {
	if err := ctx.Err(); err != nil { // toward was interrupted
		return err
	}
	o := host.Options{Link: f.Link, NetIf: f.NetIf, Addrs: f.Addr, Shards: f.Shards, Fault: faults}
	o.Device.OnOffloadOff = offloadOff
	capture, err := createCapture(pcap)
	if err != nil {
		return err
	}
	if capture != nil {
		o.Pcap = capture
		defer func() { err = errors.Join(err, capture.Close()) }()
	}
	dev, err := f.openDevice(ctx, o)
	if err != nil {
		return portTaken(err, f.local, os.Args)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if err = use(dev); err != nil {
		tellFailure(dev, err)
	}
	return err
}

// storyRows is how many events a subcommand that has failed shows of its queue pair's story.
const storyRows = 12

// tellFailure draws the end of the latest story of a device of this program, if one of its queue pairs has failed. Of a
// daemon's it says where the story is.
func tellFailure(dev ib.Device, err error) {
	d, ok := dev.(roce.Device)
	if !ok {
		var failed *ib.WCError
		if errors.As(err, &failed) && ib.ReasonOf(failed.Vendor) != ib.ReasonNone {
			fmt.Fprintf(messages, "`goroced why %#x` tells how it came to this\n", uint32(failed.QPN))
		}
		return
	}
	list := d.Failures()
	if len(list) == 0 {
		return
	}
	s := &list[len(list)-1]
	ladder := s.Ladder(storyRows)
	fmt.Fprintf(messages, "the last that QP %#x saw; ask its peer, too:\n\n%s\n", uint32(s.Num),
		ladder.Text(trace.TextOptions{Fold: 4}))
}

// openDevice opens the device that the flags name. If they leave open whose it is, and it is a daemon's, it says that.
func (f *deviceFlags) openDevice(ctx context.Context, o host.Options) (ib.Device, error) {
	switch {
	case f.asked():
		return device.OpenDaemon(ctx, f.Socket, f.Device, o)
	case f.Own || strings.HasPrefix(f.Device, "rnic:"):
		return device.Open(f.Device, o)
	}
	dev, err := device.Any(ctx, f.Device, o)
	if d, ok := dev.(*client.Device); ok {
		fmt.Fprintf(messages, "goroced: this is device %s of the daemon at %s; --own takes one of this program\n",
			d.Attr().Name, d.Socket())
	}
	return dev, err
}

// offloadOff explains that a peer makes segmentation offload impossible.
func offloadOff(peer ib.GID) {
	fmt.Fprintf(messages, "goroced: segmentation offload is switched off for %v: it receives packets that are sent "+
		"singly, but not those that the NIC cuts from longer ones\n", peer.Addr())
}
