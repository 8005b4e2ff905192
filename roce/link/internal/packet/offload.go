package packet

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/neigh"
	"github.com/goroce/goroce/wire"
)

// Offload says whether runs are passed to the kernel as a whole.
type Offload uint8

// Offload settings.
const (
	OffloadAuto Offload = iota // if the kernel supports it
	OffloadOn                  // opening fails if it does not
	OffloadOff                 // never
)

var errAsked = errors.New("as asked")

// noOffload returns why runs are sent frame by frame, or nil.
func noOffload(want Offload) error {
	if want == OffloadOff {
		return errAsked
	}
	err := probe()
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("packet sockets do not segment UDP before Linux 6.2: %w", errors.ErrUnsupported)
	}
	return err
}

// probe sends a run of two frames by the loopback interface, to a MAC address that this interface does not have, so
// nobody receives them.
func probe() error {
	self := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	lo, err := neigh.Holding(self)
	if err != nil {
		return fmt.Errorf("no loopback interface to try it on: %w", err)
	}
	fd, err := packetSocket([]bpf.Instruction{bpf.RetConstant{Val: 0}}, true)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const frame = 16
	gid := ib.GIDFromAddr(self)
	f := wire.Frame{EtherDst: [6]byte{2}, Outer: wire.Outer{Src: gid, Dst: gid, DstPort: link.Port, HopLimit: 1}}
	message := f.AppendHeaders(make([]byte, vnetLen), 2*frame)
	segment(message, &f.Outer, frame, 2*frame)
	message = append(message, make([]byte, 2*frame)...)
	err = unix.Sendto(fd, message, 0, &unix.SockaddrLinklayer{Protocol: bigEndian16(unix.ETH_P_IP), Ifindex: lo.Index})
	if err != nil {
		return fmt.Errorf("send a run by %s: %w", lo.Name, err)
	}
	return nil
}

// mergesByID reports whether UDP_GRO makes the kernel merge only packets whose IPv4 identifications count up, or are
// all equal, so that the first of a merged run determines the others. Linux does so since 6.10
// (gro_receive_network_flush).
func mergesByID() bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && reaches(unix.ByteSliceToString(u.Release[:]), 6, 10)
}

// reaches reports whether a kernel's release, such as "6.12.9-amd64", is at least that version.
func reaches(release string, major, minor int) bool {
	var a, b int
	_, err := fmt.Sscanf(release, "%d.%d", &a, &b)
	return err == nil && (a > major || a == major && b >= minor)
}
