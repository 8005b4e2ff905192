package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
)

// unhex returns the bytes that hexadecimal digits stand for.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Packets from elsewhere, IP header to ICRC.
const (
	// A congestion notification captured from a ConnectX-4 Lx.
	vectorCNP = "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000" +
		"00000000000000000000000000000000" + "82fd002a"
	// SEND Only "hello": three bytes of pad.
	vectorSend = "45000034000040004011b965c0a80001c0a80002f80612b700200000" +
		"0430ffff000000118000012368656c6c6f0000009a18aa06"
	// Its acknowledgement, MSN 1.
	vectorAck = "45000030000040004011b969c0a80002c0a80001f80612b7001c00001100ffff00000012000001231f00000106719519"
)

func TestVectors(t *testing.T) {
	zeros := make([]byte, 16)
	for _, tc := range []struct {
		name, ip string
		want     Packet
	}{
		{"CNP", vectorCNP, Packet{
			BTH:     BTH{Opcode: CNP, PKey: 0xFFFF, BECN: true, DestQP: 0x118},
			Payload: zeros}},
		{"SEND Only", vectorSend, Packet{
			BTH:     BTH{Opcode: RCSendOnly, PadCnt: 3, PKey: 0xFFFF, DestQP: 0x11, AckReq: true, PSN: 0x123},
			Payload: []byte("hello")}},
		{"ACK", vectorAck, Packet{
			BTH:     BTH{Opcode: RCAck, PKey: 0xFFFF, DestQP: 0x12, PSN: 0x123},
			AETH:    AETH{Syndrome: AckNoCredits, MSN: 1},
			Payload: []byte{}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := unhex(t, tc.ip)
			var f Frame
			if err := f.DecodeIP(b); err != nil {
				t.Fatal(err)
			}
			var got Packet
			if err := got.Decode(f.Transport[:len(f.Transport)-ICRCLen]); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if !f.Outer.Check(f.Transport) {
				t.Error("bad ICRC")
			}
			if again := encode(&f, &got)[EtherLen:]; !bytes.Equal(again, b) {
				t.Errorf("encoded again:\n got % x\nwant % x", again, b)
			}
		})
	}
}

// Each field lies where the specification draws it.
func TestFieldLayout(t *testing.T) {
	// All of BTH byte 1, 4 and 8, and 24-bit fields cut to size.
	p := Packet{
		BTH: BTH{Opcode: XRCFlush, SE: true, MigReq: true, PadCnt: 2, PKey: 0x1234, FECN: true, BECN: true, Resv6: 0x15,
			DestQP: 0xFFABCDEF, AckReq: true, Resv7: 0x2A, PSN: 0xFF123456},
		XRCSRQ: 0xFF010203, XRCResv: 0x77,
		FETH: FETH{Placement: FlushGlobal | FlushPersistent, Selectivity: FlushRegion, Resv: 1},
		RETH: RETH{VA: 0x0102030405060708, RKey: 0x0A0B0C0D, Len: 0x80000000},
	}
	want := unhex(t, "bce01234d5abcdefaa123456"+"77010203"+"00000053"+"01020304050607080a0b0c0d80000000")
	if got := p.AppendHeaders(nil); !bytes.Equal(got, want) {
		t.Errorf("FLUSH:\n got % x\nwant % x", got, want)
	}
	p = Packet{
		BTH: BTH{Opcode: RCCompareSwap},
		Atomic: AtomicETH{VA: 0x1112131415161718, RKey: 0x21222324, Swap: 0x3132333435363738,
			Compare: 0x4142434445464748},
	}
	want = unhex(t, "130000000000000000000000"+"1112131415161718"+"21222324"+"3132333435363738"+"4142434445464748")
	if got := p.AppendHeaders(nil); !bytes.Equal(got, want) {
		t.Errorf("CmpSwap:\n got % x\nwant % x", got, want)
	}
	p = Packet{BTH: BTH{Opcode: UDSendOnlyImm}, DETH: DETH{QKey: 0x80010000, SrcQP: 0xFF000001, Resv: 0x99},
		Imm: 0xCAFEF00D}
	want = unhex(t, "650000000000000000000000"+"8001000099000001"+"cafef00d")
	if got := p.AppendHeaders(nil); !bytes.Equal(got, want) {
		t.Errorf("UD SEND Only with Immediate:\n got % x\nwant % x", got, want)
	}
	p = Packet{BTH: BTH{Opcode: RCAtomicAck}, AETH: AETH{Syndrome: AckNoCredits, MSN: 0xFF000102},
		AtomicAck: 0x0102030405060708}
	want = unhex(t, "120000000000000000000000"+"1f000102"+"0102030405060708")
	if got := p.AppendHeaders(nil); !bytes.Equal(got, want) {
		t.Errorf("ATOMIC Acknowledge:\n got % x\nwant % x", got, want)
	}
}

// badPackets are packets that Decode refuses.
func badPackets() []struct {
	name string
	b    []byte
	want *HeaderError
} {
	bth := func(op Opcode, byte1 byte, more int) []byte {
		b := make([]byte, op.HeaderLen()+more)
		b[0], b[1] = byte(op), byte1
		return b
	}
	return []struct {
		name string
		b    []byte
		want *HeaderError
	}{
		{"nothing", nil, errBTHShort},
		{"half a BTH", make([]byte, 11), errBTHShort},
		{"unassigned opcode", append([]byte{0x15}, make([]byte, 19)...), errBTHOpcode},
		{"reliable datagram", append([]byte{0x44}, make([]byte, 19)...), errBTHOpcode},
		{"version 1", bth(RCSendOnly, 0x01, 4), errBTHVersion},
		{"WRITE without RETH", bth(RCWriteOnly, 0, 0)[:24], errExtShort},
		{"not a multiple of 4", bth(RCSendOnly, 0, 5), errPadAlign},
		{"pad longer than payload", bth(RCSendOnly, 0x10, 0), errPadCount},
		{"ACK with pad", bth(RCAck, 0x10, 0), errPadCount},
		{"ACK with payload", bth(RCAck, 0, 4), errPayloadNone},
		{"ACK with payload and pad", bth(RCAck, 0x30, 4), errPayloadNone},
		{"READ request with payload", bth(RCReadRequest, 0, 4), errPayloadNone},
		{"ATOMIC WRITE of 4 bytes", bth(RCAtomicWrite, 0, 4), errPayloadFixed},
		{"ATOMIC WRITE of 8 bytes, one of them pad", bth(RCAtomicWrite, 0x10, 8), errPayloadFixed},
		{"ATOMIC WRITE of 8 bytes and pad", bth(RCAtomicWrite, 0x30, 12), errPayloadFixed},
		{"CNP without its 16 bytes", bth(CNP, 0, 0), errPayloadFixed},
		{"more than the largest MTU", bth(RCSendOnly, 0, 4100), errPayloadLong},
	}
}

func TestBadPackets(t *testing.T) {
	for _, tc := range badPackets() {
		var p Packet
		err := p.Decode(tc.b)
		if err != error(tc.want) {
			t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
		}
		if !errors.Is(err, tc.want.Err) || tc.want.Err == nil {
			t.Errorf("%s: %v is not %v", tc.name, err, tc.want.Err)
		}
	}
	const want = "BTH: unknown opcode: want an opcode of RC, UC, UD or XRC, CNP, or SACK"
	if got := errBTHOpcode.Error(); got != want {
		t.Errorf("the error reads %q, want %q", got, want)
	}
}

// Payload is within the input, and appending to it does not touch pad or ICRC.
func TestPayloadAliases(t *testing.T) {
	var f Frame
	if err := f.DecodeIP(unhex(t, vectorSend)); err != nil {
		t.Fatal(err)
	}
	var p Packet
	b := f.Transport[:len(f.Transport)-ICRCLen]
	if err := p.Decode(b); err != nil {
		t.Fatal(err)
	}
	if &p.Payload[0] != &b[BTHLen] {
		t.Error("payload is a copy")
	}
	if cap(p.Payload) != len(p.Payload) {
		t.Errorf("payload has room for %d more bytes, want none", cap(p.Payload)-len(p.Payload))
	}
}

// Decode leaves headers alone that the opcode does not have.
func TestDecodeKeepsOtherHeaders(t *testing.T) {
	p := Packet{RETH: RETH{VA: 1, RKey: 2, Len: 3}, Imm: 4}
	if err := p.Decode(make([]byte, BTHLen)); err != nil {
		t.Fatal(err)
	}
	if p.RETH != (RETH{VA: 1, RKey: 2, Len: 3}) || p.Imm != 4 {
		t.Errorf("RETH %+v, Imm %d; want %+v, 4", p.RETH, p.Imm, RETH{VA: 1, RKey: 2, Len: 3})
	}
}

func TestPadFor(t *testing.T) {
	for n, want := range []uint8{0, 3, 2, 1, 0, 3, 2, 1, 0} {
		if got := PadFor(n); got != want {
			t.Errorf("PadFor(%d) = %d, want %d", n, got, want)
		}
	}
}

// PutHeaders and AppendHeaders write the same; the latter after what is there.
func TestAppendHeaders(t *testing.T) {
	p := Packet{BTH: BTH{Opcode: RCWriteOnlyImm, PSN: 5}, RETH: RETH{VA: 1 << 40, RKey: ib.Key(9), Len: 8}, Imm: 7}
	buf := make([]byte, p.Opcode.HeaderLen())
	n := p.PutHeaders(buf)
	if got := p.AppendHeaders([]byte("before")); !bytes.Equal(got, append([]byte("before"), buf[:n]...)) {
		t.Errorf("got % x, want % x after 6 bytes", got, buf[:n])
	}
}
