// Package device opens the RDMA device that a command line names. It is the only place where the kind of device
// matters; its users have an ib.Device. Owned keeps what they make on it.
package device

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rnic"
)

// Soft is the name of the software device; "" stands for it, too.
const Soft = "soft"

// rnicPrefix precedes the kernel's name in names of RNICs.
const rnicPrefix = "rnic:"

// Names are the names that Open accepts, for errors and help.
const Names = Soft + ", " + host.DevicePrefix + "IF (software, on network interface IF), " +
	rnicPrefix + "NAME (an RNIC, as ibv_devices names it)"

// Open opens the named device. The options are for software devices; an RNIC refuses them, because it has its own link
// and addresses.
func Open(name string, o host.Options) (ib.Device, error) { return open(name, o, openSoft) }

// Any opens the named device as Open does, but takes the daemon's software device if the daemon has its addresses
// (host.Any).
func Any(ctx context.Context, name string, o host.Options) (ib.Device, error) {
	return open(name, o, func(o host.Options) (ib.Device, error) { return host.Any(ctx, o) })
}

// open opens the named device, a software device by soft.
func open(name string, o host.Options, soft func(host.Options) (ib.Device, error)) (ib.Device, error) {
	netif, onIf := strings.CutPrefix(name, host.DevicePrefix)
	rnicName, isRNIC := strings.CutPrefix(name, rnicPrefix)
	switch {
	case name == "" || name == Soft:
		return soft(o)
	case onIf && netif != "":
		if o.NetIf != "" || len(o.Addrs) > 0 {
			return nil, refuse(name, fmt.Errorf("%w: it names a network interface, so --netif and --addr are excluded",
				ib.ErrInvalid))
		}
		o.NetIf = netif
		return soft(o)
	case isRNIC && rnicName != "":
		if given := softOption(&o); given != "" {
			return nil, refuse(name, fmt.Errorf("%w: %s is for the software device", ib.ErrInvalid, given))
		}
		return rnic.Open(rnicName)
	}
	return nil, refuse(name, ib.ErrInvalid)
}

// OpenDaemon opens a device of the daemon; "" and Soft stand for the first. socketPath is the path of its socket; "" is
// the default.
func OpenDaemon(ctx context.Context, socketPath, name string, o host.Options) (ib.Device, error) {
	if given := softOption(&o); given != "" {
		return nil, refuse(name, fmt.Errorf(
			"%w: %s is for a device of this program's own; the daemon has its own settings", ib.ErrInvalid, given))
	}
	if name == Soft {
		name = ""
	}
	conn, err := socket.Dial(socket.Client, socketPath)
	if err != nil {
		return nil, err
	}
	dev, err := client.New(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// RNICs returns the names of the RNICs; none if this program cannot open RNICs.
func RNICs() ([]string, error) {
	names, err := rnic.Devices()
	if errors.Is(err, ib.ErrNotSupported) {
		return nil, nil
	}
	for i := range names {
		names[i] = rnicPrefix + names[i]
	}
	return names, err
}

// openSoft opens a software device. It exists because a nil roce.Device in an interface would not equal nil.
func openSoft(o host.Options) (ib.Device, error) {
	dev, err := host.Open(o)
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// softOption returns the first option that is set, by the name of its flag; "" if there is none.
func softOption(o *host.Options) string {
	for _, c := range []struct {
		given bool
		flag  string
	}{
		{o.Link != "" && o.Link != "auto", "--link"},
		{o.NetIf != "", "--netif"},
		{len(o.Addrs) > 0, "--addr"},
		{o.Shards != 0, "--shards"},
		{!o.Fault.Perfect(), "--drop"},
		{o.Pcap != nil || o.Trace != nil, "--pcap"},
	} {
		if c.given {
			return c.flag
		}
	}
	return ""
}

func refuse(name string, err error) error {
	return driver.Refuse("open RDMA device", "--device", name, Names, err)
}
