// Package device opens the RDMA device that a command line names. It is the one
// place where the kind of device is chosen; what runs on it sees an ib.Device.
package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/goroce/goroce/cmd/goroced/internal/config/socket"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/rnic"
)

// Soft names the software device, which "" stands for too.
const Soft = "soft"

// rnicPrefix begins the names of RNICs, before the kernel's name.
const rnicPrefix = "rnic:"

// Names lists what Open takes, for people.
const Names = Soft + ", " + host.DevicePrefix + "IF (software, on network interface IF), " +
	rnicPrefix + "NAME (an RNIC, as ibv_devices names it)"

// Open opens a device: one of Names. The options are those of the software device;
// an RNIC refuses them, as it has a link and addresses of its own.
func Open(name string, o host.Options) (ib.Device, error) {
	netif, onIf := strings.CutPrefix(name, host.DevicePrefix)
	rnicName, isRNIC := strings.CutPrefix(name, rnicPrefix)
	switch {
	case name == "" || name == Soft:
		return openSoft(o)
	case onIf && netif != "":
		if o.NetIf != "" || len(o.Addrs) > 0 {
			return nil, refuse(name, fmt.Errorf("%w: it names a network interface, so --netif and --addr are excluded",
				ib.ErrInvalid))
		}
		o.NetIf = netif
		return openSoft(o)
	case isRNIC && rnicName != "":
		if given := softOption(&o); given != "" {
			return nil, refuse(name, fmt.Errorf("%w: %s is for the software device", ib.ErrInvalid, given))
		}
		return rnic.Open(rnicName)
	}
	return nil, refuse(name, ib.ErrInvalid)
}

// OpenDaemon opens a device of the daemon, the first for "" and for Soft. socket is its
// socket's path; "" is where daemons are.
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

// Memory returns n bytes to register with dev, on a page boundary: such as it reaches
// quickest, if it has a wish.
func Memory(dev ib.Device, n int) []byte {
	if a, ok := dev.(ib.Allocator); ok && n > 0 {
		if buf, err := a.Alloc(n); err == nil {
			return buf
		}
	}
	page := os.Getpagesize()
	buf := make([]byte, n+page)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))) & (page - 1)
	return buf[skip : skip+n : skip+n]
}

// Free gives back what Memory has returned. Its regions are closed.
func Free(dev ib.Device, buf []byte) {
	if a, ok := dev.(ib.Allocator); ok {
		_ = a.Free(buf) // what it has not given is Go's
	}
}

// RNICs lists the RNICs by the names that Open takes; none where a program cannot
// open any.
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

// openSoft does not turn a nil *roce.Device into an interface that is not nil.
func openSoft(o host.Options) (ib.Device, error) {
	dev, err := host.Open(o)
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// softOption returns the first option that is set; "" if none is. They are called
// by the flags that set them.
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
	return ib.Refuse("open RDMA device", "--device", name, Names, err)
}
