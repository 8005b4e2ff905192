package forward

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// cable is two stations, each a packet socket, with a Forwarder between them:
//
//	near - veth - Forwarder - veth - far
type cable struct {
	testing.TB
	f         *Forwarder
	near, far int
}

// newCable creates a cable in a new network namespace. The test's thread ends with the test.
func newCable(t testing.TB, c wrap.FaultConfig) *cable {
	t.Helper()
	require.Root(t)
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	for _, names := range [][2]string{{"near", "a"}, {"far", "b"}} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = names[0]
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: names[1]}); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			dev, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(dev)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"near", "a", "far", "b"} {
		waitUp(t, name)
	}
	x := &cable{TB: t}
	x.near, x.far = x.station("near"), x.station("far")
	if x.f, err = Open("a", "b", c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.f.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// waitUp waits until a device is operational: until then it drops packets.
func waitUp(t testing.TB, name string) {
	t.Helper()
	require.Until(t, name+" is operational", func() bool {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return dev.Attrs().OperState == netlink.OperUp
	})
}

func (x *cable) station(name string) int {
	fd, err := openSocket(name)
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { unix.Close(fd) })
	return fd
}

// outer returns the headers of a packet from near to far.
func outer(id uint16) wire.Outer {
	return wire.Outer{Src: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}, Dst: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 2},
		SrcPort: 0xC123, DstPort: link.Port, HopLimit: 1, ID: id}
}

// packet returns a frame with a virtio_net_hdr, to carry n bytes of payload in a WRITE
// MIDDLE with that PSN, with its ICRC.
func packet(psn ib.PSN, n int) []byte {
	h := wire.Frame{EtherDst: [6]byte{2, 0, 0, 0, 0, 2}, EtherSrc: [6]byte{2, 0, 0, 0, 0, 1}, Outer: outer(uint16(psn))}
	bth := make([]byte, wire.BTHLen+n+wire.ICRCLen)
	bth[0] = byte(wire.RCWriteMiddle)
	bth[9], bth[10], bth[11] = byte(psn>>16), byte(psn>>8), byte(psn)
	h.Outer.Seal(bth)
	return append(h.AppendHeaders(make([]byte, vnetLen), len(bth)), bth...)
}

func (x *cable) send(frame []byte) {
	x.Helper()
	if _, err := unix.Write(x.near, frame); err != nil {
		x.Fatal(err)
	}
}

// receive returns the next frame with its virtio_net_hdr.
func (x *cable) receive() []byte {
	x.Helper()
	buf := make([]byte, maxFrame)
	for {
		n, _, err := unix.Recvfrom(x.far, buf, 0)
		switch {
		case err == nil && n > vnetLen && buf[vnetLen] == 0x33:
			continue // packets that the kernel itself sends to IPv6 multicast groups
		case err == nil:
			return buf[:n]
		case !errors.Is(err, unix.EAGAIN):
			x.Fatal(err)
		}
		x.await()
	}
}

// await waits until a frame has arrived.
func (x *cable) await() {
	x.Helper()
	fds := []unix.PollFd{{Fd: int32(x.far), Events: unix.POLLIN}}
	const patience = 10_000 // milliseconds
	if n, err := unix.Poll(fds, patience); n == 0 || err != nil && !errors.Is(err, unix.EINTR) {
		x.Fatalf("nothing arrives: %v", err)
	}
}

// packets receives until the frame marker arrives, which is not RoCEv2 and passes at once.
// Packets that the forwarder delays are not returned.
func (x *cable) packets() (list []wire.Frame, errs []error) {
	x.Helper()
	x.send(marker)
	for {
		frame := x.receive()
		if cmp.Equal(frame, marker) {
			return list, errs
		}
		var h wire.Frame
		if err := h.Decode(frame[vnetLen:]); err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, h)
	}
}

// marker is a frame of an EtherType for experiments.
var marker = append(make([]byte, vnetLen+12), 0x88, 0xB5, 1, 2, 3)

func psns(list []wire.Frame) (psns []int) {
	for _, h := range list {
		psns = append(psns, int(binary.BigEndian.Uint32(h.Transport[8:])&0xFFFFFF))
	}
	return psns
}

// TestUntouched checks that a packet to which no fault applies arrives unchanged.
func TestUntouched(t *testing.T) {
	x := newCable(t, wrap.FaultConfig{})
	want := packet(7, 100)
	x.send(want)
	if diff := cmp.Diff(want, x.receive()); diff != "" {
		t.Error(diff)
	}
}

// TestOthersPass checks that other packets pass when all RoCEv2 packets are lost.
func TestOthersPass(t *testing.T) {
	x := newCable(t, wrap.FaultConfig{Drop: 1})
	x.send(packet(7, 100))
	if list, errs := x.packets(); len(list)+len(errs) > 0 {
		t.Errorf("%d packets arrived, want none", len(list)+len(errs))
	}
	if there, back := x.f.Counts(); there.Dropped != 1 || back.Dropped != 0 {
		t.Errorf("%+v and %+v, want 1 dropped, and none on the way back", there, back)
	}
}

// TestConditions checks the effect of each condition on 200 packets of 1,000 bytes on the wire.
func TestConditions(t *testing.T) {
	const n, size = 200, 1000
	badICRC := func(h *wire.Frame) bool { return !h.Outer.Check(h.Transport) }
	for _, c := range []struct {
		name  string
		c     wrap.FaultConfig
		like  func(h *wire.Frame) bool // true for some of the packets that arrive
		fails bool                     // some cannot be decoded: their UDP checksum is wrong
		all   bool                     // all arrive
	}{
		{name: "drop", c: wrap.FaultConfig{Drop: 0.3}},
		{name: "corrupt", c: wrap.FaultConfig{Corrupt: 0.3}, like: badICRC, all: true},
		{name: "truncate", c: wrap.FaultConfig{Truncate: 0.3}, like: func(h *wire.Frame) bool {
			return badICRC(h) && len(h.Transport) < size
		}, all: true},
		{name: "ce", c: wrap.FaultConfig{MarkCE: 0.3}, like: func(h *wire.Frame) bool {
			return !badICRC(h) && h.Outer.TrafficClass == 3
		}, all: true},
		{name: "checksum", c: wrap.FaultConfig{BadChecksum: 0.3}, fails: true, all: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func() (list []wire.Frame, errs []error) {
				x := newCable(t, c.c)
				for i := range n {
					x.send(packet(ib.PSN(i), size-wire.BTHLen-wire.ICRCLen))
				}
				return x.packets()
			}
			c.c.Seed = 5
			list, errs := run()
			hit := n - len(list)
			if c.like != nil {
				hit = len(slices.DeleteFunc(slices.Clone(list), func(h wire.Frame) bool { return !c.like(&h) }))
			}
			if hit < n/5 || hit > n/2 || c.fails != (len(errs) > 0) || c.all != (len(list)+len(errs) == n) {
				t.Errorf("%d of %d, with %d wrong checksums; %d are as they should be, want about %d",
					len(list), n, len(errs), hit, n*3/10)
			}
			again, _ := run()
			if diff := cmp.Diff(list, again); diff != "" {
				t.Error("the same seed, another fate: ", diff)
			}
		})
	}
}

func TestLatency(t *testing.T) {
	const latency = 50 * time.Millisecond
	x := newCable(t, wrap.FaultConfig{Latency: latency})
	sent := time.Now()
	x.send(packet(7, 100))
	list, _ := x.packets()
	if len(list) == 0 {
		x.receive()
	}
	if after := time.Since(sent); after < latency {
		t.Errorf("it arrived after %v, want %v at least", after, latency)
	}
}

func TestBlackHole(t *testing.T) {
	x := newCable(t, wrap.FaultConfig{BlackHole: 500})
	x.send(packet(1, 1000))
	x.send(packet(2, 100))
	list, _ := x.packets()
	if diff := cmp.Diff([]int{2}, psns(list)); diff != "" {
		t.Error(diff)
	}
}

// TestRuns checks that a run that its sender left to segmentation offload is forwarded as
// packets, each of which may be lost alone, and that the others are correct.
func TestRuns(t *testing.T) {
	const n = 10
	x := newCable(t, wrap.FaultConfig{Seed: 2, Drop: 0.3})
	one := packet(0, 100)
	frame := one[vnetLen+14+28:]
	run := slices.Clone(one[:vnetLen+14])
	o := outer(0)
	run = o.AppendHeaders(run, n*len(frame))
	for i := range n {
		o.ID = uint16(i)
		frame[11] = byte(i)
		o.Seal(frame)
		run = append(run, frame...)
	}
	// The fields of struct virtio_net_hdr: NEEDS_CSUM, GSO_UDP_L4, the length of the headers, the
	// size of a segment, and the place of the checksum.
	run[0], run[vnetGSOType] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, unix.VIRTIO_NET_HDR_GSO_UDP_L4
	binary.NativeEndian.PutUint16(run[2:], 14+28)
	binary.NativeEndian.PutUint16(run[vnetGSOSize:], uint16(len(frame)))
	binary.NativeEndian.PutUint16(run[6:], 14+20)
	binary.NativeEndian.PutUint16(run[8:], 6)
	x.send(run)
	list, errs := x.packets()
	got := psns(list)
	if len(got) == 0 || len(got) == n || !slices.IsSorted(got) || len(errs) > 0 {
		t.Errorf("packets %v of %d, %v; want some, in order, no errors", got, n, errs)
	}
	for i := range list {
		if !list[i].Outer.Check(list[i].Transport) {
			t.Errorf("packet %d has a wrong ICRC", got[i])
		}
	}
}
