package capfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// sample is what the files of these tests hold.
var sample = []Packet{
	{Num: 1, At: 1_700_000_000_123_456_789, Link: Ethernet, Data: []byte("one"), WireLen: 3},
	{Num: 2, At: 1_700_000_001_000_000_000, Link: Ethernet, Data: []byte("two, longer"), WireLen: 1500},
	{Num: 3, At: 1_700_000_001_000_000_001, Link: Ethernet, Data: []byte{}, WireLen: 60},
}

// all reads a whole file.
func all(data []byte) (out []Packet, err error) {
	c, err := NewReader("test.pcap", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for {
		var p Packet
		if err := c.Next(&p); err == io.EOF {
			return out, nil
		} else if err != nil {
			return out, err
		}
		p.Data = bytes.Clone(p.Data)
		out = append(out, p)
	}
}

// pcapFile writes the sample as pcap.
func pcapFile(order binary.AppendByteOrder, magic uint32, tickNS int64) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = order.AppendUint32(b, 65535)
	b = order.AppendUint32(b, uint32(Ethernet)|0x24000000) // with an FCS of 4 bytes
	for _, p := range sample {
		b = order.AppendUint32(b, uint32(p.At/1e9))
		b = order.AppendUint32(b, uint32(int64(p.At)%1e9/tickNS))
		b = order.AppendUint32(b, uint32(len(p.Data)))
		b = order.AppendUint32(b, uint32(p.WireLen))
		b = append(b, p.Data...)
	}
	return b
}

// block wraps a body in a pcapng block.
func block(order binary.AppendByteOrder, typ uint32, body []byte) []byte {
	body = append(body, make([]byte, -len(body)&3)...)
	b := order.AppendUint32(nil, typ)
	b = order.AppendUint32(b, uint32(len(body)+12))
	b = append(b, body...)
	return order.AppendUint32(b, uint32(len(body)+12))
}

// ngSection writes a section header and one interface with these options.
func ngSection(order binary.AppendByteOrder, link uint16, options ...byte) []byte {
	head := order.AppendUint32(nil, byteOrderMagic)
	head = order.AppendUint16(head, 1)
	head = append(order.AppendUint16(head, 0), bytes.Repeat([]byte{0xFF}, 8)...)
	face := order.AppendUint32(order.AppendUint16(nil, link), 0)[:4]
	face = append(order.AppendUint32(face, 65535), options...)
	return append(block(order, blockSection, head), block(order, blockInterface, face)...)
}

// ngPacket writes an enhanced packet block.
func ngPacket(order binary.AppendByteOrder, iface uint32, ticks uint64, p *Packet) []byte {
	b := order.AppendUint32(nil, iface)
	b = order.AppendUint32(b, uint32(ticks>>32))
	b = order.AppendUint32(b, uint32(ticks))
	b = order.AppendUint32(b, uint32(len(p.Data)))
	b = order.AppendUint32(b, uint32(p.WireLen))
	return block(order, blockPacket, append(b, p.Data...))
}

// inMicros returns the sample as a file with microseconds has it.
func inMicros() []Packet {
	out := append([]Packet(nil), sample...)
	for i := range out {
		out[i].At -= out[i].At % 1000
	}
	return out
}

// ngwriter writes the sample with gopacket, whose time stamps are in nanoseconds.
func ngwriter(t *testing.T) []byte {
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sample {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, int64(p.At)), CaptureLength: len(p.Data), Length: p.WireLen}
		if err := w.WritePacket(ci, p.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// nanos are interface options: time stamps are in units of 10^-9 s.
var nanos = []byte{0, optTSResol, 0, 1, 9, 0, 0, 0}

func TestFormats(t *testing.T) {
	le, be := binary.LittleEndian, binary.BigEndian
	bigNG := ngSection(be, uint16(Ethernet), nanos...)
	for _, p := range sample {
		bigNG = append(bigNG, block(be, 0x80000001, []byte("unknown block"))...)
		bigNG = append(bigNG, ngPacket(be, 0, uint64(p.At), &p)...)
	}
	for _, c := range []struct {
		name string
		file []byte
		want []Packet
	}{
		{"pcap", pcapFile(le, magicMicro, 1000), inMicros()},
		{"pcap, big endian", pcapFile(be, magicMicro, 1000), inMicros()},
		{"pcap, nanoseconds", pcapFile(le, magicNano, 1), sample},
		{"pcap, nanoseconds, big endian", pcapFile(be, magicNano, 1), sample},
		{"pcapng of gopacket", ngwriter(t), sample},
		{"pcapng, big endian, unknown blocks", bigNG, sample},
		{"pcap without packets", pcapFile(le, magicMicro, 1000)[:pcapHeaderLen], nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := all(c.file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestNGBlocks: link types beyond 8 bits, two sections of different byte order,
// the other packet blocks, resolutions and offsets of time.
func TestNGBlocks(t *testing.T) {
	le, be := binary.LittleEndian, binary.BigEndian
	// 2^-10 s, 100 s on
	file := ngSection(le, uint16(SLL2), 9, 0, 1, 0, 0x8A, 0, 0, 0, 14, 0, 8, 0, 100, 0, 0, 0, 0, 0, 0, 0)
	file = append(file, ngPacket(le, 0, 5<<10|512, &Packet{Data: []byte("x"), WireLen: 1})...)
	file = append(file, block(le, blockSimple, append(le.AppendUint32(nil, 9), "simple"...))...)
	file = append(file, ngSection(be, uint16(Raw))...)
	file = append(file, block(be, blockOldPacket, append([]byte{0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0,
		0, 2}, "ab"...))...)
	got, err := all(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Packet{
		{Num: 1, At: 105.5e9, Link: SLL2, Data: []byte("x"), WireLen: 1},
		{Num: 2, At: 0, Link: SLL2, Data: []byte("simple\x00\x00"), WireLen: 9},
		{Num: 3, At: 7000, Link: Raw, Data: []byte("ab"), WireLen: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDirections: what tells sent and received packets apart: the flags of a packet, the names of interfaces in
// goroce's captures, the packet type of Linux's cooked headers.
func TestDirections(t *testing.T) {
	le := binary.LittleEndian
	packet := func(options ...byte) []byte {
		head := make([]byte, packetHeaderLen)
		le.PutUint32(head[12:], 5)
		le.PutUint32(head[16:], 5)
		return block(le, blockPacket, append(append(head, "12345\x00\x00\x00"...), options...))
	}
	name := append([]byte{optName, 0, 9, 0}, "eth0 sent\x00\x00\x00"...)
	file := append(ngSection(le, uint16(Raw)), packet()...)
	file = append(file, packet(1, 0, 1, 0, 'c', 0, 0, 0, optFlags, 0, 4, 0, byte(Received), 0, 0, 0, 0, 0, 0, 0)...)
	file = append(file, packet(optFlags, 0, 4, 0, 0xFE, 1, 0, 0)...)
	file = append(file, ngSection(le, uint16(Raw), name...)...)
	file = append(file, packet()...)
	file = append(file, packet(optFlags, 0, 4, 0, byte(Received), 0, 0, 0)...)
	file = append(file, packet(optFlags, 0, 4, 0, 0, 0, 0, 0)...)
	got, err := all(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Direction{DirUnknown, Received, Sent, Sent, Received, Sent} {
		if i >= len(got) || got[i].Dir != want || string(got[i].Data) != "12345" {
			t.Errorf("packet %d: %+v, want direction %q", i+1, got, want)
		}
	}
	outgoing, sll2 := make([]byte, sllLen), make([]byte, sll2Len)
	outgoing[1], sll2[10] = 4, 4
	for _, c := range []struct {
		link LinkType
		data []byte
		want Direction
	}{{SLL, outgoing, Sent}, {SLL, make([]byte, sllLen), Received}, {SLL2, sll2, Sent}, {SLL2, outgoing, DirUnknown},
		{Ethernet, outgoing, DirUnknown}} {
		if got := c.link.direction(c.data); got != c.want {
			t.Errorf("%v: direction %q, want %q", c.link, got, c.want)
		}
	}
}

// TestResolutions: no resolution that a file may ask for divides by zero.
func TestResolutions(t *testing.T) {
	for r := range 256 {
		f := iface{tsResol: uint8(r)}
		f.instant(1<<64 - 1)
	}
	for _, c := range []struct {
		resol uint8
		ticks uint64
		want  int64
	}{{6, 1_500_000, 1.5e9}, {0, 3, 3e9}, {19, 15e17, 15e7}, {0x80, 3, 3e9}, {0xBF, 1 << 62, 5e8}, {20, 1 << 62, 0},
		{0xC0, 1 << 62, 0}} {
		f := iface{tsResol: c.resol}
		if got := int64(f.instant(c.ticks)); got != c.want {
			t.Errorf("resolution %#x, %d ticks = %d ns, want %d", c.resol, c.ticks, got, c.want)
		}
	}
}

// TestTruncated: every way to cut a file short is either its end or ErrTruncated.
func TestTruncated(t *testing.T) {
	for name, file := range map[string][]byte{"pcap": pcapFile(binary.LittleEndian, magicNano, 1),
		"pcapng": ngwriter(t)} {
		ends := 0
		for n := range file {
			got, err := all(file[:n])
			if err == nil {
				ends++
				continue
			}
			var e *Error
			if !errors.Is(err, ErrTruncated) || !errors.As(err, &e) || e.File != "test.pcap" {
				t.Fatalf("%s of %d bytes: %v, want %v of test.pcap", name, n, err, ErrTruncated)
			}
			if e.Packet > 0 && e.Packet != len(got)+1 && name == "pcap" {
				t.Fatalf("%s of %d bytes: error for packet %d, want %d", name, n, e.Packet, len(got)+1)
			}
		}
		if ends < len(sample) {
			t.Errorf("%s: only %d places to end, want at least %d", name, ends, len(sample))
		}
	}
}

// TestDamaged: errors name what is wrong.
func TestDamaged(t *testing.T) {
	le := binary.LittleEndian
	pcap := pcapFile(le, magicMicro, 1000)
	edit := func(at int, v uint32) []byte {
		b := bytes.Clone(pcap)
		le.PutUint32(b[at:], v)
		return b
	}
	ng := ngSection(le, 1)
	for _, c := range []struct {
		name string
		file []byte
		is   error
		text string
	}{
		{"text", []byte("hello, world"), ErrFormat, "file header"},
		{"gzip", []byte{0x1F, 0x8B, 8, 0}, ErrFormat, "gunzip"},
		{"empty", nil, ErrTruncated, "file header"},
		{"pcap version", edit(4, 7), ErrFormat, "version 7"},
		{"pcap length", edit(pcapHeaderLen+8, 1<<31), ErrCorrupt,
			"packet 1: damaged file: captured length 2147483648; at most 262144"},
		{"second packet", edit(pcapHeaderLen+pcapRecordLen+3+8, 1<<20), ErrCorrupt, "packet 2"},
		{"pcapng byte order", append(le.AppendUint32(nil, magicNG), make([]byte, 24)...), ErrCorrupt, "byte order"},
		{"pcapng version", append(append([]byte(nil), ng[:12]...), append([]byte{9, 0, 0, 0}, ng[16:]...)...),
			ErrFormat, "version 9"},
		{"block length", append(bytes.Clone(ng), 6, 0, 0, 0, 3, 0, 0, 0), ErrCorrupt, "length 3"},
		{"long block", append(bytes.Clone(ng), 99, 0, 0, 0, 0, 0, 0, 0x70), ErrCorrupt, "block of type 0x63"},
		{"interface", append(bytes.Clone(ng), ngPacket(le, 5, 0, &sample[0])...), ErrCorrupt,
			"interface 5, but the section describes 1"},
		{"packet block", append(bytes.Clone(ng), block(le, blockPacket, make([]byte, 8))...), ErrCorrupt, "packet 1"},
		{"captured length", append(bytes.Clone(ng), block(le, blockPacket,
			append(make([]byte, 12), 0xFF, 0, 0, 0, 0, 0, 0, 0))...), ErrCorrupt, "room for 0"},
		{"simple block", block(le, blockSection, append(le.AppendUint32(nil, byteOrderMagic), 1, 0, 0, 0, 0, 0, 0, 0, 0,
			0, 0, 0)), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := all(c.file)
			if !errors.Is(err, c.is) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v; want %v with %q", err, c.is, c.text)
			}
		})
	}
}

func TestLinkTypes(t *testing.T) {
	ip := []byte{0x45, 1, 2, 3}
	v6 := []byte{0x60, 1, 2, 3}
	for _, c := range []struct {
		link LinkType
		data []byte
		want []byte
	}{
		{Raw, ip, ip},
		{RawBSD, v6, v6},
		{RawOpen, ip, ip},
		{IPv4, ip, ip},
		{IPv6, v6, v6},
		{Null, append([]byte{2, 0, 0, 0}, ip...), ip},
		{SLL, append([]byte{0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0}, ip...), ip},
		{SLL2, append([]byte{0x86, 0xDD, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0}, v6...), v6},
		{SLL, append([]byte{0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 6}, ip...), nil}, // ARP
		{SLL2, []byte{8, 0}, nil},
		{SLL, []byte{8, 0}, nil},
		{Null, []byte{2}, nil},
		{Raw, nil, nil},
	} {
		got, ok := c.link.IP(c.data)
		if ok != (c.want != nil) || ok && !bytes.Equal(got, c.want) {
			t.Errorf("%v %x: IP = %x, %v; want %x", c.link, c.data, got, ok, c.want)
		}
		if !c.link.Known() {
			t.Errorf("%v is not known", c.link)
		}
	}
	if l := LinkType(127); l.Known() || l.String() != "LinkType(127)" {
		t.Errorf("radiotap: known %v, %v; want unknown, LinkType(127)", l.Known(), l)
	}
}

// FuzzReader: any bytes give packets, an end or an *Error. A Writer and a Reader keep the packets as they are.
func FuzzReader(f *testing.F) {
	f.Add(pcapFile(binary.LittleEndian, magicMicro, 1000))
	f.Add(append(ngSection(binary.BigEndian, 1, nanos...), ngPacket(binary.BigEndian, 0, 5, &sample[0])...))
	f.Fuzz(func(t *testing.T, file []byte) {
		packets, err := all(file)
		if err != nil && !errors.As(err, new(*Error)) {
			t.Errorf("error %T: %v, want a *Error", err, err)
		}
		for _, p := range packets {
			if p.WireLen < len(p.Data) || len(p.Data) > MaxCapture {
				t.Errorf("packet %d: %d bytes captured of %d, want at most those, and %d", p.Num, len(p.Data),
					p.WireLen, MaxCapture)
			}
		}
		if len(packets) == 0 {
			return
		}
		again, err := all(written(t, packets))
		if err != nil {
			t.Fatalf("what a Writer has made of the packets: %v", err)
		}
		if diff := cmp.Diff(packets, again); diff != "" {
			t.Errorf("-read +written and read again:\n%s", diff)
		}
	})
}
