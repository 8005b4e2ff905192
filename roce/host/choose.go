package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"runtime"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/afxdp"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/roce/link/udp"
)

// ErrCapability matches every [CapabilityError] with errors.Is.
var ErrCapability = errors.New("missing capability")

// CapabilityError says that a link needs a capability that the process does not have.
type CapabilityError struct {
	Link       string // "rawsock"
	Capability string // "CAP_NET_RAW"
	Err        error  // the kernel's error
}

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("link %s needs %s: %v; run as root, or `setcap %s+ep` the program, or use link udp, which "+
		"needs no privilege",
		e.Link, e.Capability, e.Err, strings.ToLower(e.Capability))
}

// Unwrap returns what the kernel said.
func (e *CapabilityError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrCapability) true.
func (e *CapabilityError) Is(target error) bool { return target == ErrCapability }

// linkKind is a kind of link.
type linkKind struct {
	name       string
	capability string // what it needs, "" if nothing
	open       func(addrs []netip.Addr, shards int, h *hearing) ([]link.Link, error)
}

// linkKinds are in the order in which "auto" tries them. Plain sockets are first: they need no privilege, work on any
// interface, and with segmentation offload on both ends nothing is faster. Raw frames are for users who want a source
// port for each connection, so that networks spread the load, or an exact check of the ICRCs of IPv4 packets, whose
// identifications sockets do not show. AF_XDP is last: an interface has room for one XDP program only, some NICs lose
// their carrier for a moment when it is attached, and only with a zero-copy driver it can be the fastest.
var linkKinds = []linkKind{
	{"udp", "", func(a []netip.Addr, n int, h *hearing) ([]link.Link, error) {
		return udp.OpenShards(a, udp.Options{OnError: h.unreachable}, n)
	}},
	{"rawsock", "CAP_NET_RAW", openRawsock},
	{"afxdp", "CAP_NET_RAW,CAP_NET_ADMIN,CAP_BPF", func(a []netip.Addr, n int, _ *hearing) ([]link.Link,
		error) {
		return afxdp.OpenShards(a, afxdp.Options{}, n)
	}},
}

func openRawsock(addrs []netip.Addr, shards int, _ *hearing) ([]link.Link, error) {
	if shards > 1 {
		return nil, fmt.Errorf("link rawsock has one shard, not %d: %w; use link udp", shards, errors.ErrUnsupported)
	}
	l, err := rawsock.Open(addrs, rawsock.Options{})
	if err != nil {
		return nil, err
	}
	return []link.Link{l}, nil
}

// openLinks opens the links of a device with that number of shards (0: as many as suit the machine), with the named
// driver, or for "auto" with the first one that works.
func openLinks(name string, addrs []netip.Addr, shards int, h *hearing) ([]link.Link, error) {
	auto := name == "" || name == "auto"
	var known []string
	var failed []error
	for _, d := range linkKinds {
		known = append(known, d.name)
		if !auto && d.name != name {
			continue
		}
		links, err := d.openShards(addrs, shards, h)
		switch {
		case err == nil:
			note := links[0].Caps().Note
			if auto {
				note = autoNote(d.name, failed, note)
			}
			if n := len(links); n > 1 {
				note += fmt.Sprintf(", %d shards", n)
			}
			links[0] = &noted{links[0], note}
			return links, nil
		case d.capability != "" && errors.Is(err, fs.ErrPermission):
			err = &CapabilityError{d.name, d.capability, err}
		}
		// The next driver is tried only if a privilege is missing, or the interface or the kernel lacks a function.
		if !auto || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
		failed = append(failed, err)
	}
	if !auto {
		return nil, driver.Refuse("choose link", "Link", name, "auto, "+strings.Join(known, ", "), ib.ErrInvalid)
	}
	return nil, errors.Join(failed...)
}

// openShards opens a number of links. If it is 0 and the driver cannot open as many as suit, it opens one.
func (d *linkKind) openShards(addrs []netip.Addr, shards int, h *hearing) ([]link.Link, error) {
	if shards > 0 {
		return d.open(addrs, shards, h)
	}
	n := shardsFor(runtime.GOMAXPROCS(0))
	links, err := d.open(addrs, n, h)
	if n > 1 && errors.Is(err, errors.ErrUnsupported) {
		return d.open(addrs, 1, h)
	}
	return links, err
}

// shardsFor returns the number of shards for a machine: one for each four processors, since applications need some,
// too, rounded down to a power of two; at least 1, at most 4.
func shardsFor(processors int) int {
	n := 1
	for n < 4 && 8*n <= processors {
		n *= 2
	}
	return n
}

// autoNote describes how the link was chosen.
func autoNote(name string, failed []error, note string) string {
	var b strings.Builder
	for _, err := range failed {
		fmt.Fprintf(&b, "%v, so ", err)
	}
	b.WriteString(name)
	if len(failed) == 0 {
		b.WriteString(", the automatic choice")
	}
	if note != "" {
		b.WriteString(": " + note)
	}
	return b.String()
}

// noted is a Link with another note.
type noted struct {
	link.Link
	note string
}

// Caps returns the capabilities of the link with the other note.
func (n *noted) Caps() link.Caps {
	c := n.Link.Caps()
	c.Note = n.note
	return c
}
