package packet

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

var testSeed = flag.Uint64("packet.seed", rand.Uint64(), "the seed of TestSegment; random if not set")

// complete does with a message what NEEDS_CSUM asks for, and returns the packet.
func complete(message []byte) []byte {
	packet := message[vnetLen:]
	start := binary.NativeEndian.Uint16(message[vnetCsumStart:])
	var sum uint32
	for i := int(start); i < len(packet); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	binary.BigEndian.PutUint16(packet[start+binary.NativeEndian.Uint16(message[vnetCsumOffset:]):], ^uint16(sum))
	return packet
}

// The kernel that completes the checksum makes a valid packet.
func TestSegment(t *testing.T) {
	seed := *testSeed
	t.Logf("-packet.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(g ib.GID, from int) ib.GID {
		for i := from; i < len(g); i++ {
			g[i] = byte(rng.Uint32())
		}
		return g
	}
	for i := range 1000 {
		src, dst := random(v4(0), 12), random(v4(0), 12)
		if i%2 == 0 {
			src, dst = random(v6(0), 1), random(v6(0), 1)
		}
		f := wire.Frame{Outer: wire.Outer{Src: src, Dst: dst, SrcPort: uint16(rng.Uint32()), DstPort: link.Port}}
		size := 16 + 4*rng.IntN(1000)
		n := size + 4*(1+rng.IntN((runBytes-size)/4))
		message := f.AppendHeaders(make([]byte, vnetLen), n)
		segment(message, &f.Outer, size, n)
		if h := binary.NativeEndian.Uint16(message[vnetHeaders:]); int(h) != len(message)-vnetLen {
			t.Fatalf("%d bytes of headers, want %d", h, len(message)-vnetLen)
		}
		if message[vnetFlags] != unix.VIRTIO_NET_HDR_F_NEEDS_CSUM ||
			message[vnetGSOType] != unix.VIRTIO_NET_HDR_GSO_UDP_L4 ||
			int(binary.NativeEndian.Uint16(message[vnetGSOSize:])) != size {
			t.Fatalf("virtio_net_hdr %x, want segments of %d bytes", message[:vnetLen], size)
		}
		for range n {
			message = append(message, byte(rng.Uint32()))
		}
		var got wire.Frame
		if err := got.Decode(complete(message)); err != nil {
			t.Fatalf("%v to %v, %d bytes: %v", src, dst, n, err)
		}
		if got.Outer != f.Outer || len(got.Transport) != n {
			t.Fatalf("%d bytes behind %+v, want %d behind %+v", len(got.Transport), got.Outer, n, f.Outer)
		}
	}
}

func TestReaches(t *testing.T) {
	for release, want := range map[string]bool{
		"6.10.0":                true,
		"6.12.48+deb12-amd64":   true,
		"7.0-rc1":               true,
		"6.9.12-200.fc40":       false,
		"6.1.0-37-amd64":        false,
		"5.14.0-503.el9.x86_64": false,
		"4.4":                   false,
		"six":                   false,
		"":                      false,
	} {
		if got := reaches(release, 6, 10); got != want {
			t.Errorf("%q reaches 6.10: %v, want %v", release, got, want)
		}
	}
}
