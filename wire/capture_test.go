package wire

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/gopacket/pcapgo"
)

// captureDirs returns the folders whose captures the tests run over: testdata,
// and the one that GOROCE_CAPTURES names.
func captureDirs() []string {
	dirs := []string{"testdata"}
	if d := os.Getenv("GOROCE_CAPTURES"); d != "" {
		dirs = append(dirs, d)
	}
	return dirs
}

// readCapture returns the frames of a pcap file.
func readCapture(t testing.TB, path string) (frames [][]byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for {
		b, info, err := r.ReadPacketData()
		if err != nil {
			break
		}
		if info.CaptureLength != info.Length {
			t.Fatalf("%s: frame %d is cut off: %d bytes, want %d", path, len(frames)+1, info.CaptureLength, info.Length)
		}
		frames = append(frames, b)
	}
	if len(frames) == 0 {
		t.Fatalf("%s: no frames", path)
	}
	return frames
}

// captures returns the pcap files of a folder.
func captures(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.pcap"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no captures in %s (%v)", dir, err)
	}
	return paths
}

// sampleFrames returns one frame of each opcode and IP version in testdata, the
// first that the files, taken in order of name, have.
func sampleFrames(t testing.TB) (frames [][]byte) {
	t.Helper()
	type kind struct {
		op Opcode
		v4 bool
	}
	seen := map[kind]bool{}
	for _, path := range captures(t, "testdata") {
		for _, b := range readCapture(t, path) {
			f, p := mustDecode(t, b)
			k := kind{p.Opcode, f.Outer.Src.Is4()}
			if !seen[k] {
				seen[k] = true
				frames = append(frames, b)
			}
		}
	}
	return frames
}

// mustDecode decodes a frame that is known to be good.
func mustDecode(t testing.TB, b []byte) (f Frame, p Packet) {
	t.Helper()
	if err := f.Decode(b); err != nil {
		t.Fatalf("frame: %v\n% x", err, b)
	}
	if err := p.Decode(f.Transport[:len(f.Transport)-ICRCLen]); err != nil {
		t.Fatalf("packet: %v\n% x", err, b)
	}
	return f, p
}

// encode writes a frame anew from its decoded form.
func encode(f *Frame, p *Packet) []byte {
	b := f.AppendHeaders(nil, p.Opcode.HeaderLen()+len(p.Payload)+int(p.PadCnt)+ICRCLen)
	at := len(b)
	b = p.AppendHeaders(b)
	b = append(b, p.Payload...)
	b = append(b, make([]byte, int(p.PadCnt)+ICRCLen)...)
	f.Outer.Seal(b[at:])
	return b
}

// Every packet of two rdma_rxe hosts decodes, encodes to the same bytes, and has
// the ICRC that we compute.
func TestCaptures(t *testing.T) {
	for _, dir := range captureDirs() {
		total := 0
		for _, path := range captures(t, dir) {
			for i, want := range readCapture(t, path) {
				f, p := mustDecode(t, want)
				if !f.Outer.Check(f.Transport) {
					t.Errorf("%s frame %d: bad ICRC", path, i+1)
				}
				if got := encode(&f, &p); !bytes.Equal(got, want) {
					t.Errorf("%s frame %d:\n got % x\nwant % x", path, i+1, got, want)
				}
				total++
			}
		}
		t.Logf("%s: %d packets", dir, total)
	}
}

// However a good frame is cut off, it is refused.
func TestTruncation(t *testing.T) {
	for _, whole := range sampleFrames(t) {
		for n := range whole {
			var f Frame
			if f.Decode(whole[:n]) == nil {
				t.Fatalf("%d of %d bytes decode: % x, want an error", n, len(whole), whole)
			}
		}
		f, p := mustDecode(t, whole)
		for n := range f.Transport {
			cut := f.Transport[:n]
			if f.Outer.Check(cut) {
				t.Fatalf("%v: %d of %d bytes have a good ICRC, want a bad one", p.Opcode, n, len(f.Transport))
			}
			var q Packet
			// Whatever is long enough for its headers, and a multiple of 4, may
			// be a packet with less payload.
			err := q.Decode(cut)
			if err == nil && (n < p.Opcode.HeaderLen() || n%4 != 0) {
				t.Fatalf("%v: %d of %d bytes decode; want only multiples of 4 from %d", p.Opcode, n, len(f.Transport),
					p.Opcode.HeaderLen())
			}
		}
	}
}

// uncovered lists the bits of a frame that neither a check of Frame.Decode nor
// the ICRC covers, as a mask per byte. All the rest is covered.
var uncovered = []struct {
	what     string
	ip       string // "4", "6", or "" for both
	at       int    // offset in the frame
	fromIP   bool   // at counts from the IP header
	fromBTH  bool   // at counts from the BTH
	n        int
	mask     byte
	onlyVLAN bool
}{
	{what: "Ethernet addresses", n: 12, mask: 0xFF},
	{what: "VLAN priority, DEI and number", at: 14, n: 2, mask: 0xFF, onlyVLAN: true},
	{what: "IPv6 traffic class, upper half", ip: "6", fromIP: true, n: 1, mask: 0x0F},
	{what: "IPv6 traffic class, lower half; flow label", ip: "6", fromIP: true, at: 1, n: 3, mask: 0xFF},
	{what: "IPv6 hop limit", ip: "6", fromIP: true, at: 7, n: 1, mask: 0xFF},
	{what: "FECN, BECN, reserved bits", fromBTH: true, at: 4, n: 1, mask: 0xFF},
}

// uncoveredMask returns the mask of uncovered bits for each byte of a frame.
func uncoveredMask(f *Frame, size int) []byte {
	mask := make([]byte, size)
	ip, version := EtherLen, "6"
	if f.HasVLAN {
		ip += VLANLen
	}
	if f.Outer.Src.Is4() {
		version = "4"
	}
	bth := ip + f.Outer.Len()
	for _, u := range uncovered {
		if u.ip != "" && u.ip != version || u.onlyVLAN && !f.HasVLAN {
			continue
		}
		at := u.at
		if u.fromIP {
			at += ip
		}
		if u.fromBTH {
			at += bth
		}
		for i := range u.n {
			mask[at+i] = u.mask
		}
	}
	for i := bth + len(f.Transport); i < size; i++ {
		mask[i] = 0xFF // Ethernet padding behind the packet
	}
	return mask
}

// A flipped bit is noticed, everywhere except where the table says.
func TestOneBitErrors(t *testing.T) {
	frames := sampleFrames(t)
	frames = append(frames, withVLAN(t, frames[0], 0x2064))
	frames = append(frames, append(bytes.Clone(frames[0]), make([]byte, 6)...))
	flips, missed := 0, 0
	for _, good := range frames {
		f, _ := mustDecode(t, good)
		mask := uncoveredMask(&f, len(good))
		bad := bytes.Clone(good)
		for bit := range len(good) * 8 {
			bad[bit/8] ^= 1 << (bit % 8)
			var g Frame
			accepted := g.Decode(bad) == nil && g.Outer.Check(g.Transport)
			if want := mask[bit/8]&(1<<(bit%8)) != 0; accepted != want {
				t.Errorf("byte %d bit %d of % x...: accepted %v, want %v", bit/8, bit%8, good[:70], accepted, want)
			}
			if accepted {
				missed++
			}
			flips++
			bad[bit/8] = good[bit/8]
		}
	}
	t.Logf("%d frames, %d flipped bits, %d of them where nothing covers", len(frames), flips, missed)
}

// withVLAN returns the frame with an 802.1Q tag.
func withVLAN(t testing.TB, b []byte, tci uint16) []byte {
	f, p := mustDecode(t, b)
	f.HasVLAN, f.VLAN = true, tci
	return encode(&f, &p)
}
