package packet

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/runs"
	"github.com/goroce/goroce/wire"
)

// frameTo returns a frame with n bytes from the BTH on.
func frameTo(dst ib.GID, n int) []byte {
	src := v6(2)
	if dst.Is4() {
		src = v4(2)
	}
	return frameBetween(src, dst, n)
}

func frameBetween(src, dst ib.GID, n int) []byte {
	f := wire.Frame{Outer: wire.Outer{Src: src, Dst: dst, SrcPort: 0xC123, DstPort: link.Port, HopLimit: 64}}
	return append(f.AppendHeaders(nil, n), make([]byte, n)...)
}

// frameSeeds are frames of both IP versions, with and without VLAN tag, IPv4 options and IPv6 extension headers.
func frameSeeds() (frames [][]byte) {
	for _, dst := range []ib.GID{v4(1), v6(1), {10: 0xFF, 11: 0xFF, 12: 224, 15: 9}, {0: 0xFF, 1: 0x0E, 15: 9}} {
		b := frameTo(dst, 64)
		tagged := slices.Insert(slices.Clone(b), 12, 0x81, 0, 0, 7)
		frames = append(frames, b, tagged, b[:60], append(slices.Clone(b), 0, 0, 0))
	}
	options := slices.Insert(frameTo(v4(1), 64), offIP+20, 1, 1, 1, 0)
	options[offIP] = 0x46
	extended := slices.Insert(frameTo(v6(1), 64), offIP+40, unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 0)
	extended[offProto6] = 0 // hop-by-hop options
	fragment := frameTo(v4(1), 64)
	fragment[offFrag4] = 0x20
	return append(frames, options, extended, fragment)
}

// receiver returns a link that receives what is written to the other end, as from a packet socket.
func receiver(t testing.TB, groups ...ib.GID) (c *Conn, peer int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) })
	c = &Conn{fd: ends[0], members: members{fd: -1, joined: map[ib.GID]int{}}}
	for _, g := range groups {
		c.members.joined[g] = -1
	}
	c.rx.init()
	return c, ends[1]
}

// TestNoSource: frames from addresses that no host has are dropped: an answer would go to a group, or to all.
func TestNoSource(t *testing.T) {
	c, peer := receiver(t)
	ip := func(text string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(text)) }
	for src, want := range map[string]int{"10.0.0.2": 1, "223.255.255.255": 1, "fd00::2": 1, "fe80::2": 1,
		"0.0.0.0": 0, "0.1.2.3": 0, "224.0.0.1": 0, "239.255.255.255": 0, "255.255.255.255": 0, "::": 0, "ff02::1": 0} {
		dst := v6(1)
		if from := ip(src); from.Is4() {
			dst = v4(1)
		}
		if _, err := unix.Write(peer, append(make([]byte, vnetLen), frameBetween(ip(src), dst, 64)...)); err != nil {
			t.Fatal(err)
		}
		before := c.stats.RxDropped
		n, err := c.Recv(0, make([]link.Run, 4))
		if err != nil || n != want || int(c.stats.RxDropped-before) != 1-want {
			t.Errorf("from %s: got %d runs, %d dropped, %v; want %d", src, n, c.stats.RxDropped-before, err, want)
		}
	}
}

// TestUnknownSegmentation: what another kind of segmentation offload has merged is dropped, not received.
func TestUnknownSegmentation(t *testing.T) {
	c, peer := receiver(t)
	for gso, want := range map[byte]int{unix.VIRTIO_NET_HDR_GSO_NONE: 1, unix.VIRTIO_NET_HDR_GSO_UDP: 0,
		unix.VIRTIO_NET_HDR_GSO_TCPV4: 0} {
		before := c.stats
		message := append(make([]byte, vnetLen), frameTo(v4(1), 64)...)
		message[vnetGSOType] = gso
		if _, err := unix.Write(peer, message); err != nil {
			t.Fatal(err)
		}
		n, err := c.Recv(0, make([]link.Run, 1))
		if err != nil || n != want || c.stats.RxFrames-before.RxFrames != uint64(want) ||
			c.stats.RxDropped-before.RxDropped != uint64(1-want) {
			t.Errorf("GSO type %d: %d runs, want %d; %+v, %v", gso, n, want, c.stats, err)
		}
	}
}

// FuzzRecv receives arbitrary messages as a packet socket delivers them: a virtio_net_hdr and a
// frame. What is received must be a run as link.Run describes, within the frame, and must be
// what the frame says; everything else is counted as dropped.
func FuzzRecv(f *testing.F) {
	for i, b := range frameSeeds() {
		f.Add(make([]byte, vnetLen), b)
		header := make([]byte, vnetLen)
		header[vnetFlags], header[vnetGSOType] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_UDP_L4
		binary.NativeEndian.PutUint16(header[vnetGSOSize:], uint16(16+2*i))
		f.Add(header, b)
	}
	f.Add([]byte{1, 2, 3}, []byte(nil))
	group := ib.GID{10: 0xFF, 11: 0xFF, 12: 224, 15: 9}
	c, peer := receiver(f, group)
	in := make([]link.Run, 4)
	f.Fuzz(func(t *testing.T, header, frame []byte) {
		message := append(slices.Clone(header[:min(len(header), vnetLen)]), frame...)
		if len(message) == 0 || len(message) > rxBuffer {
			return
		}
		before := c.stats
		if _, err := unix.Write(peer, message); err != nil {
			t.Fatal(err)
		}
		n, err := c.Recv(0, in)
		if err != nil || n > 1 {
			t.Fatalf("%d runs of a message: %v, want at most 1", n, err)
		}
		frames, dropped := c.stats.RxFrames-before.RxFrames, c.stats.RxDropped-before.RxDropped
		if n == 0 {
			if frames > 0 {
				t.Fatalf("%d frames of no run, want none", frames)
			}
			return
		}
		r := &in[0]
		if frames != uint64(r.Frames()) || frames == 0 || len(r.Buf)+int(dropped) > len(frame) {
			t.Fatalf("%d frames counted, want %d; %d dropped, %d bytes of %d", frames, r.Frames(), dropped, len(r.Buf),
				len(frame))
		}
		sum := 0
		for i := range r.Frames() {
			if part := r.Frame(i); len(part) < runs.MinFrame || len(part)%4 != 0 {
				t.Fatalf("frame %d has %d bytes, want a multiple of 4 from %d", i, len(part), runs.MinFrame)
			}
			sum += len(r.Frame(i))
		}
		whole := wire.Frame{PartialUDPSum: true}
		if err := whole.Decode(message[vnetLen:]); err != nil || sum != len(r.Buf) || r.Dst != whole.Outer.Dst ||
			r.Src != whole.Outer.Src || r.ID != whole.Outer.ID {
			t.Fatalf("%d bytes in frames, want %d; from %v to %v, want those of the frame: %+v, %v", sum, len(r.Buf),
				r.Src.Addr(), r.Dst.Addr(), whole.Outer, err)
		}
		if r.Dst.Addr().IsMulticast() && r.Dst != group {
			t.Fatalf("a frame to group %v, want %v, which is joined", r.Dst.Addr(), group.Addr())
		}
	})
}

// FuzzFilter runs the socket filters on arbitrary frames. They must pass what wire.Frame decodes and
// is for the link or a group, as what they reject is lost; and nothing whose addresses or protocols are others.
func FuzzFilter(f *testing.F) {
	for _, b := range frameSeeds() {
		f.Add(b)
	}
	local := []ib.GID{v4(1), v6(1), v4(2)}
	programs := map[string]struct {
		vm     *bpf.VM
		accept func(ib.GID) bool
	}{}
	for name, p := range map[string]struct {
		code   []bpf.Instruction
		accept func(ib.GID) bool
	}{
		"ours":   {ours(local), func(g ib.GID) bool { return slices.Contains(local, g) }},
		"groups": {toGroups(), func(g ib.GID) bool { return g.Addr().IsMulticast() }},
	} {
		vm, err := bpf.NewVM(p.code)
		if err != nil {
			f.Fatal(err)
		}
		programs[name] = struct {
			vm     *bpf.VM
			accept func(ib.GID) bool
		}{vm, p.accept}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame := wire.Frame{PartialUDPSum: true}
		err := frame.Decode(b)
		for name, p := range programs {
			n, vmErr := p.vm.Run(b)
			if vmErr != nil {
				t.Fatal(vmErr)
			}
			want := err == nil && !frame.HasVLAN && p.accept(frame.Outer.Dst)
			if passes := n > 0; want && !passes || passes && err == nil && !want {
				t.Errorf("%s passes %v, want %v: % x", name, passes, want, b)
			}
		}
	})
}
