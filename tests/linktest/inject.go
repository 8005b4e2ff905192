package linktest

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// NewFrame returns an Ethernet frame with 64 bytes of RoCEv2 from another host to an address. If vlan is not nil it has
// that VLAN tag.
func NewFrame(mac [6]byte, dst ib.GID, vlan *uint16) []byte {
	f := wire.Frame{EtherDst: mac, EtherSrc: [6]byte{2},
		Outer: wire.Outer{Src: dst, Dst: dst, SrcPort: 1, DstPort: link.Port, HopLimit: 1}}
	if dst.Addr().IsMulticast() { // no host has such an address
		f.Outer.Src = ib.GIDFromAddr(netip.MustParseAddr("fd00::1"))
		if dst.Is4() {
			f.Outer.Src = ib.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))
		}
	}
	f.Outer.Src[15] = 77
	if vlan != nil {
		f.HasVLAN, f.VLAN = true, *vlan
	}
	return append(f.AppendHeaders(nil, 64), make([]byte, 64)...)
}

// Inject sends a frame by the namespace's interface.
func (n *Namespace) Inject(t testing.TB, frame []byte) {
	t.Helper()
	err := n.Do(func() error {
		itf, err := net.InterfaceByName(n.IfName)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: itf.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
}
