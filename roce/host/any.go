package host

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/link/port"
)

// findWait is how long a daemon may take to say which devices it has.
const findWait = 3 * time.Second

// Any returns a device with the addresses of o: the daemon's (a *client.Device) if the daemon that this program finds
// ([client.Find]) has them, and else one of this process, as Open returns it. An address has one UDP port 4791, so
// where a daemon has it Open fails.
//
// With NetIf, or without any address, the daemon must have the main address of the interface (MainAddr). If it is not
// clear which interface that is, the daemon's first device is taken. Link, Shards, Fault, FlushRxe, Pcap, Trace and
// Live are for a device of this process: if one is set, none else is taken. ctx limits the search.
func Any(ctx context.Context, o Options) (ib.Device, error) {
	if o.own() {
		return openOwn(o, nil)
	}
	wanted, unclear := addresses(&o)
	if unclear != nil && (o.NetIf != "" || len(o.Addrs) > 0) {
		return nil, unclear
	}
	if o.NetIf != "" || len(o.Addrs) == 0 && len(wanted) > 0 {
		wanted = []netip.Addr{MainAddr(wanted)}
	}
	dev, err := ofDaemon(ctx, wanted)
	if dev != nil || ctx.Err() != nil {
		return dev, err
	}
	return openOwn(o, err)
}

// own reports whether an option is set that a daemon's device cannot have.
func (o *Options) own() bool {
	return o.Link != "" && o.Link != "auto" || o.Shards != 0 || !o.Fault.Perfect() || o.FlushRxe || o.Pcap != nil ||
		o.Trace != nil || o.Live != nil
}

// openOwn is Open. If a daemon has the port that this user may not use, which is the error none, both are told.
func openOwn(o Options, none error) (ib.Device, error) {
	dev, err := Open(o)
	switch {
	case err == nil:
		return dev, nil
	case errors.Is(err, port.ErrTaken) && errors.Is(none, fs.ErrPermission):
		return nil, errors.Join(err, none)
	}
	return nil, err
}

// ofDaemon returns the first of the daemon's devices that has these addresses, the first of all if there are none. It
// returns nil if no device has them, with the error if no daemon can be asked.
func ofDaemon(ctx context.Context, addrs []netip.Addr) (ib.Device, error) {
	conn, err := socket.DialContext(ctx, socket.Client, "")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	asking, cancel := context.WithTimeout(ctx, findWait)
	defer cancel()
	greeting, err := socket.Greet(asking, conn)
	if err != nil {
		return nil, err
	}
	for _, name := range greeting.Devices {
		dev, err := client.Dial(asking, client.Options{Socket: conn.RemoteAddr().String(), Device: name})
		if err != nil {
			return nil, err
		}
		table, err := dev.GIDs(1)
		if err == nil && !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !holds(table, a) }) {
			return dev, nil
		}
		if err := errors.Join(err, dev.Close()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// holds reports whether a GID table has an address.
func holds(table []ib.GIDEntry, a netip.Addr) bool {
	return slices.ContainsFunc(table, func(e ib.GIDEntry) bool { return e.GID == ib.GIDFromAddr(a.WithZone("")) })
}
