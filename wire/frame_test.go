package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/goroce/goroce/ib"
)

// goodFrames returns an ACK over IPv4 and one over IPv6, from the Ethernet header on. They are the same in each run:
// some tests put a wrong UDP checksum into them, which is right for 1 of 65,536 frames.
func goodFrames() (v4, v6 []byte) {
	f := Frame{EtherDst: [6]byte{2, 0, 0, 0, 0, 2}, EtherSrc: [6]byte{2, 0, 0, 0, 0, 1}}
	p := Packet{BTH: BTH{Opcode: RCAck, PKey: ib.DefaultPKey, DestQP: 17, PSN: 9}, AETH: AETH{Syndrome: AckNoCredits}}
	r := rand.New(rand.NewPCG(1, 0))
	f.Outer = randomOuter(r, true)
	f.Outer.NoDF = false
	v4 = encode(&f, &p)
	f.Outer = randomOuter(r, false)
	return v4, encode(&f, &p)
}

// set returns a copy of b with bytes replaced from offset at.
func set(b []byte, at int, with ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], with)
	return b
}

// setIPv4 is set within the IPv4 header, with the header checksum put right.
func setIPv4(b []byte, at int, with ...byte) []byte {
	b = set(b, EtherLen+at, with...)
	binary.BigEndian.PutUint16(b[EtherLen+10:], 0)
	var sum uint32
	for i := 0; i < IPv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[EtherLen+i:]))
	}
	sum = sum>>16 + sum&0xFFFF
	sum = sum>>16 + sum&0xFFFF
	binary.BigEndian.PutUint16(b[EtherLen+10:], ^uint16(sum))
	return b
}

// badFrames are frames that Decode refuses.
func badFrames(t testing.TB) []struct {
	name string
	b    []byte
	want *HeaderError
} {
	v4, v6 := goodFrames()
	const ip, udp4, udp6 = EtherLen, EtherLen + IPv4Len, EtherLen + IPv6Len
	tag := []byte{0x81, 0, 0, 1}
	tagged := append(append(bytes.Clone(v4[:12]), tag...), v4[12:]...)
	mappedAddr := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1}
	return []struct {
		name string
		b    []byte
		want *HeaderError
	}{
		{"nothing", nil, errEtherShort},
		{"half an Ethernet header", v4[:13], errEtherShort},
		{"half a VLAN tag", tagged[:17], errEtherShort},
		{"ARP", set(v4, 12, 0x08, 0x06), errEtherType},
		{"RoCE v1", set(v4, 12, 0x89, 0x15), errEtherType},
		{"two VLAN tags", append(append(bytes.Clone(tagged[:12]), tag...), tagged[12:]...), errEtherType},
		{"802.1ad", set(tagged, 12, 0x88, 0xA8), errEtherType},
		{"no IP header", v4[:14], errIPShort},
		{"IPv6 in the EtherType of IPv4", set(v4, ip, 0x65), errIPVersion},
		{"half an IPv4 header", v4[:ip+19], errIPv4Short},
		{"IHL 4", setIPv4(v4, 0, 0x44), errIPv4IHL},
		{"IHL 6", setIPv4(v4, 0, 0x46), errIPv4Options},
		{"IPv4 checksum", set(v4, ip+8, v4[ip+8]+1), errIPv4Sum},
		{"IPv4 longer than the frame", setIPv4(v4, 2, 0xFF, 0xFF), errIPv4Length},
		{"IPv4 shorter than its header", setIPv4(v4, 2, 0, 19), errIPv4Length},
		{"more fragments", setIPv4(v4, 6, 0x20, 0), errIPv4Fragment},
		{"a later fragment", setIPv4(v4, 6, 0, 1), errIPv4Fragment},
		{"reserved flag", setIPv4(v4, 6, 0xC0, 0), errIPv4Fragment},
		{"TCP", setIPv4(v4, 9, 6), errIPv4Protocol},
		{"half an IPv6 header", v6[:ip+39], errIPv6Short},
		{"IPv6 longer than the frame", set(v6, ip+4, 0xFF, 0xFF), errIPv6Length},
		{"hop-by-hop options", set(v6, ip+6, 0), errIPv6Next},
		{"mapped source", set(v6, ip+8, mappedAddr...), errIPv6Mapped},
		{"mapped destination", set(v6, ip+24, mappedAddr...), errIPv6Mapped},
		{"UDP without BTH", setIPv4(v4, 2, 0, 20+8+15), errUDPShort},
		{"another port", set(v4, udp4+2, 0x12, 0xB8), errUDPPort},
		{"UDP length too small", set(v4, udp4+4, 0, 24), errUDPLength},
		{"UDP length too big", set(v6, udp6+4, 0, 29), errUDPLength},
		{"UDP checksum", set(v6, udp6+6, 0x12, 0x34), errUDPSum},
	}
}

func TestBadFrames(t *testing.T) {
	for _, tc := range badFrames(t) {
		var f Frame
		err := f.Decode(tc.b)
		if err != error(tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
		}
		if !errors.Is(err, tc.want.Err) {
			t.Errorf("%s: %v is not %v", tc.name, err, tc.want.Err)
		}
	}
	for _, b := range [][]byte{nil, {0x55}, {0x00, 0x00}} {
		var f Frame
		if err := f.DecodeIP(b); err != errIPShort && err != errIPVersion {
			t.Errorf("% x: %v, want %v or %v", b, err, errIPShort, errIPVersion)
		}
	}
}

// Fields come out as they went in, with and without a VLAN tag and "don't
// fragment", whatever was in the Frame before; bytes after the packet do not matter.
func TestFrameRoundTrip(t *testing.T) {
	r := newRand(t)
	var got Frame
	for i := range 100 {
		want := Frame{EtherDst: [6]byte(randomFrame(r, 6)), EtherSrc: [6]byte(randomFrame(r, 6)),
			Outer: randomOuter(r, i%2 == 0)}
		if want.HasVLAN = i%4 < 2; want.HasVLAN {
			want.VLAN = uint16(r.Uint32())
		}
		transport := randomFrame(r, 16+4*i)
		b := append(want.AppendHeaders([]byte("head"), len(transport)), transport...)[4:]
		b = append(b, make([]byte, i%7)...)
		if err := got.Decode(b); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		if !bytes.Equal(got.Transport, transport) || cap(got.Transport) != len(transport) {
			t.Errorf("transport % x, want % x", got.Transport, transport)
		}
		if got.EtherDst != want.EtherDst || got.EtherSrc != want.EtherSrc || got.HasVLAN != want.HasVLAN ||
			want.HasVLAN && got.VLAN != want.VLAN || got.Outer != want.Outer {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// UDP checksums that a sender did compute are checked, over everything.
func TestUDPChecksum(t *testing.T) {
	v4, v6 := goodFrames()
	for _, good := range [][]byte{v4, v6} {
		f, _ := mustDecode(t, good)
		at := EtherLen + f.Outer.Len() - UDPLen
		binary.BigEndian.PutUint16(good[at+6:], udpChecksum(good[EtherLen:]))
		if err := new(Frame).Decode(good); err != nil {
			t.Fatalf("right checksum: %v", err)
		}
		for i := at; i < len(good); i++ {
			bad := set(good, i, good[i]^0x10)
			if err := new(Frame).Decode(bad); err == nil {
				t.Errorf("byte %d of UDP is not covered, want an error", i-at)
			}
		}
		bad := set(good, at+6, 0x12, 0x34)
		partial := Frame{PartialUDPSum: true}
		if err := partial.Decode(bad); err != nil {
			t.Errorf("a partial checksum was checked: %v", err)
		}
	}
}

// udpChecksum computes the checksum of an IP packet's UDP part, two bytes at a time.
func udpChecksum(ip []byte) uint16 {
	addrs, udp := ip[8:40], bytes.Clone(ip[40:])
	if ip[0]>>4 == 4 {
		addrs, udp = ip[12:20], bytes.Clone(ip[20:])
	}
	udp[6], udp[7] = 0, 0
	sum := uint32(17 + len(udp))
	for _, part := range [][]byte{addrs, udp} {
		for i, c := range part {
			sum += uint32(c) << (8 * (1 - i%2))
		}
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return ^uint16(sum)
}
