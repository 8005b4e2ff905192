package layers

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/wire"
)

// captures returns the capture files of package wire.
func captures(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("../testdata/*.pcap")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no captures (%v)", err)
	}
	return paths
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
		b, _, err := r.ReadPacketData()
		if err != nil {
			return frames
		}
		frames = append(frames, b)
	}
}

// eachFrame runs fn on every frame of the captures.
func eachFrame(t *testing.T, fn func(t *testing.T, frame []byte, packet gopacket.Packet)) {
	for _, path := range captures(t) {
		for _, frame := range readCapture(t, path) {
			packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
			if e := packet.ErrorLayer(); e != nil {
				t.Fatalf("%s: %v\n% x", path, e.Error(), frame)
			}
			fn(t, frame, packet)
		}
	}
}

// shape names the layers of a packet in order.
func shape(packet gopacket.Packet) string {
	var names []string
	for _, l := range packet.Layers() {
		names = append(names, l.LayerType().String())
	}
	return strings.Join(names, "/")
}

// Both decoders read the same from every captured packet, and both say that its
// ICRC is right.
func TestCapturesAgainstWire(t *testing.T) {
	n := 0
	eachFrame(t, func(t *testing.T, frame []byte, _ gopacket.Packet) {
		if err := Verify(frame); err != nil {
			t.Errorf("%v\n% x", err, frame)
		}
		n++
	})
	t.Logf("%d packets", n)
}

// TestVerify: a flipped bit of a frame is found wherever the ICRC covers it, and frames that carry no RoCE are refused.
func TestVerify(t *testing.T) {
	frame := readCapture(t, captures(t)[0])[0]
	for i := range 12 * 8 { // of the BTH
		const bth = 14 + 20 + 8
		bad := bytes.Clone(frame)
		bad[bth+i/8] ^= 1 << (i % 8)
		masked := i/8 == 4 // FECN, BECN and reserved bits: no ICRC covers them (IBTA 7.8.1)
		if err := Verify(bad); (err == nil) != masked {
			t.Errorf("bit %d of the BTH flipped: error %v; want one: %v", i, err, !masked)
		}
	}
	for _, bad := range [][]byte{nil, frame[:14], frame[:14+20+8], frame[:len(frame)-1], make([]byte, 60)} {
		if err := Verify(bad); err == nil {
			t.Errorf("% x is accepted, want an error", bad)
		}
	}
}

// Both decoders agree on random headers behind every opcode, and on which opcodes
// exist.
func TestOpcodesAgainstWire(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 256 * 8 {
		b := make([]byte, 64+wire.ICRCLen)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0], b[1] = byte(i), b[1]&0xC0
		op := wire.Opcode(b[0])
		if op.Valid() && !op.HasPayload() {
			b = b[:op.HeaderLen()+wire.ICRCLen]
		}
		switch op {
		case wire.RCAtomicWrite, wire.XRCAtomicWrite:
			b = b[:op.HeaderLen()+8+wire.ICRCLen]
		case wire.CNP:
			b = b[:12+16+wire.ICRCLen]
		}
		packet := gopacket.NewPacket(b, LayerTypeBTH, gopacket.Default)
		if e := packet.ErrorLayer(); e != nil {
			t.Fatalf("%v: %v", op, e.Error())
		}
		var want wire.Packet
		if err := want.Decode(b[:len(b)-wire.ICRCLen]); err != nil {
			if op.Valid() {
				t.Fatalf("%v: %v", op, err)
			}
			if got := shape(packet); got != "BTH/RoCEPayload/ICRC" {
				t.Errorf("%v decodes as %s, want BTH/RoCEPayload/ICRC", op, got)
			}
			continue
		}
		if diff := cmp.Diff(want, toWire(packet), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%v: wire -, layers +: %s", op, diff)
		}
	}
}

// Captured packets come apart into these layers.
func TestShapes(t *testing.T) {
	want := map[wire.Opcode]string{
		wire.RCSendOnly:      "BTH/RoCEPayload/ICRC",
		wire.RCSendMiddle:    "BTH/RoCEPayload/ICRC",
		wire.RCWriteFirst:    "BTH/RETH/RoCEPayload/ICRC",
		wire.RCReadRequest:   "BTH/RETH/ICRC",
		wire.RCReadRespFirst: "BTH/AETH/RoCEPayload/ICRC",
		wire.RCAck:           "BTH/AETH/ICRC",
		wire.RCAtomicAck:     "BTH/AETH/AtomicAckETH/ICRC",
		wire.RCFetchAdd:      "BTH/AtomicETH/ICRC",
		wire.UDSendOnly:      "BTH/DETH/RoCEPayload/ICRC",
	}
	seen := map[wire.Opcode]bool{}
	eachFrame(t, func(t *testing.T, _ []byte, packet gopacket.Packet) {
		bth := packet.Layer(LayerTypeBTH).(*BTH)
		if want[bth.Opcode] == "" {
			return
		}
		seen[bth.Opcode] = true
		ip := packet.NetworkLayer().LayerType().String()
		if got, want := shape(packet), "Ethernet/"+ip+"/UDP/"+want[bth.Opcode]; got != want {
			t.Errorf("%v: %s, want %s", bth.Opcode, got, want)
		}
	})
	for op := range want {
		if !seen[op] {
			t.Errorf("no %v in the captures", op)
		}
	}
}

// Decoded layers, serialized with lengths and ICRC made anew, give the same bytes.
func TestSerialize(t *testing.T) {
	fixAll := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	eachFrame(t, func(t *testing.T, frame []byte, packet gopacket.Packet) {
		bth := packet.Layer(LayerTypeBTH).(*BTH)
		udp := packet.TransportLayer().(*layers.UDP)
		bth.PadCnt = 0 // to be found again
		packet.Layer(LayerTypeICRC).(*ICRC).Value = 0
		if err := bth.SetOuter(packet.NetworkLayer(), udp); err != nil {
			t.Fatal(err)
		}
		buf := gopacket.NewSerializeBuffer()
		all := packet.Layers()
		for i := len(all) - 1; i >= 0; i-- {
			opts := fixAll
			// gopacket would put a checksum where rdma_rxe leaves 0.
			opts.ComputeChecksums = all[i].LayerType() != layers.LayerTypeUDP
			if err := all[i].(gopacket.SerializableLayer).SerializeTo(buf, opts); err != nil {
				t.Fatal(err)
			}
		}
		if got := buf.Bytes(); !bytes.Equal(got, frame) {
			t.Errorf("got  % x\nwant % x", got, frame)
		}
	})
}

// Without SetOuter the ICRC stays what it was, and other network layers are refused.
func TestSerializeWithoutOuter(t *testing.T) {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, &BTH{Opcode: wire.RCSendOnly}, &ICRC{Value: 0x04030201}); err != nil {
		t.Fatal(err)
	}
	if got := buf.Bytes(); !bytes.Equal(got[12:], []byte{1, 2, 3, 4}) {
		t.Errorf("ICRC % x, want 01 02 03 04", got[12:])
	}
	if err := new(BTH).SetOuter(&otherNetwork{}, &layers.UDP{}); err == nil {
		t.Error("SetOuter takes any network layer")
	}
}

// otherNetwork is a network layer that is neither IPv4 nor IPv6.
type otherNetwork struct{ layers.BaseLayer }

func (*otherNetwork) LayerType() gopacket.LayerType { return layers.LayerTypeIPSecAH }
func (*otherNetwork) NetworkFlow() gopacket.Flow    { return gopacket.Flow{} }

// Payload sets the pad count of its BTH.
func TestSerializePads(t *testing.T) {
	for n, want := range []uint8{0, 3, 2, 1, 0} {
		bth := &BTH{Opcode: wire.RCSendOnly}
		payload := &Payload{Data: make([]byte, n)}
		payload.Follow(bth)
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, bth, payload,
			&ICRC{}); err != nil {
			t.Fatal(err)
		}
		if bth.PadCnt != want || buf.Bytes()[1]>>4 != want || len(buf.Bytes())%4 != 0 {
			t.Errorf("%d bytes: pad count %d, %d bytes in all; want pad count %d", n, bth.PadCnt, len(buf.Bytes()),
				want)
		}
	}
}

// The layers work in a DecodingLayerParser, without allocation of layers.
func TestDecodingLayerParser(t *testing.T) {
	var (
		eth     layers.Ethernet
		ip4     layers.IPv4
		ip6     layers.IPv6
		udp     layers.UDP
		bth     BTH
		decoded []gopacket.LayerType
	)
	own := map[gopacket.LayerType]layer{}
	decoders := []gopacket.DecodingLayer{&eth, &ip4, &ip6, &udp, &bth}
	for _, k := range kinds[1:] {
		l := k.make()
		l.Follow(&bth)
		own[k.typ] = l
		decoders = append(decoders, l)
	}
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, decoders...)
	eachFrame(t, func(t *testing.T, frame []byte, packet gopacket.Packet) {
		if err := parser.DecodeLayers(frame, &decoded); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, typ := range decoded {
			names = append(names, typ.String())
		}
		if got, want := strings.Join(names, "/"), shape(packet); got != want {
			t.Errorf("layers %s, want %s", got, want)
		}
		icrc := packet.Layer(LayerTypeICRC).(*ICRC)
		if got := own[LayerTypeICRC].(*ICRC).Value; got != icrc.Value {
			t.Errorf("ICRC %#x, want %#x", got, icrc.Value)
		}
	})
}

// A packet cut off anywhere has an error layer, or a payload that is too short.
func TestTruncation(t *testing.T) {
	eachFrame(t, func(t *testing.T, frame []byte, packet gopacket.Packet) {
		transport := packet.TransportLayer().LayerPayload()
		bth := packet.Layer(LayerTypeBTH).(*BTH)
		for n := range min(len(transport), 80) {
			cut := gopacket.NewPacket(transport[:n], LayerTypeBTH, gopacket.Default)
			enough := n >= bth.Opcode.HeaderLen()+int(bth.PadCnt)+icrcLen
			if failed := cut.ErrorLayer() != nil; failed == enough {
				t.Fatalf("%v: %d of %d bytes: %v; want it decoded: %v", bth.Opcode, n, len(transport), cut, enough)
			}
		}
	})
}

func TestCheckICRC(t *testing.T) {
	frame := readCapture(t, captures(t)[0])[0]
	frame[len(frame)-1] ^= 1
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if ok, err := CheckICRC(packet); ok || err != nil {
		t.Errorf("a wrong ICRC: %v, %v; want false without an error", ok, err)
	}
	packet = gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	transport := packet.TransportLayer().LayerPayload()
	packet = gopacket.NewPacket(transport, LayerTypeBTH, gopacket.Default)
	if ok, err := CheckICRC(packet); ok || err == nil {
		t.Error("an ICRC was checked without an IP header")
	}
	for _, b := range [][]byte{nil, {0x45}, make([]byte, 60), append([]byte{0x41}, make([]byte, 60)...)} {
		if _, err := ComputeICRC(b); err == nil {
			t.Errorf("% x has an ICRC, want an error", b)
		}
	}
}

// No transport packet makes the decoders panic, nor does any IP packet ComputeICRC.
// (gopacket's own layers do panic on some frames; NewPacket recovers, unless told
// not to as here.)
func FuzzDecode(f *testing.F) {
	for _, path := range captures(f) {
		f.Add(readCapture(f, path)[0][14:])
		f.Add(readCapture(f, path)[0][42:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		packet := gopacket.NewPacket(data, LayerTypeBTH, gopacket.DecodeOptions{SkipDecodeRecovery: true})
		if ok, err := CheckICRC(packet); ok || err == nil {
			t.Error("an ICRC was checked without an IP header")
		}
		_, _ = ComputeICRC(data)
	})
}
