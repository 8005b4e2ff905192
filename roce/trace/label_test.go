package trace

import (
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

func TestLabel(t *testing.T) {
	kib := make([]byte, 1024)
	reth := wire.RETH{VA: 0x7f0012345000, RKey: 0x1234, Len: 5000}
	for _, c := range []struct {
		want string
		p    wire.Packet
	}{
		{"SEND First psn=100 (1024 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendFirst, PSN: 100}, Payload: kib}},
		{"SEND Last imm psn=100 AckReq SE imm=0xbeef (1024 B)",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendLastImm, PSN: 100, AckReq: true, SE: true}, Imm: 0xBEEF,
				Payload: kib}},
		{"SEND Only inv psn=1 inv=0x77 (0 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnlyInv, PSN: 1},
			InvKey: 0x77}},
		{"WRITE First psn=1 FECN va=0x7f0012345000 len=5000 rkey=0x1234 (1024 B)",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteFirst, PSN: 1, FECN: true}, RETH: reth, Payload: kib}},
		{"READ Request psn=1 va=0x7f0012345000 len=5000 rkey=0x1234",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest, PSN: 1}, RETH: reth}},
		{"READ Response First psn=1 msn=2 (1024 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRespFirst, PSN: 1},
			AETH: wire.AETH{Syndrome: wire.AckNoCredits, MSN: 2}, Payload: kib}},
		{"READ Response Middle psn=2 (1024 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRespMiddle, PSN: 2},
			Payload: kib}},
		{"ACK psn=3 msn=1", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 3},
			AETH: wire.AETH{Syndrome: wire.AckNoCredits, MSN: 1}}},
		{"ACK psn=3 msn=1 credits=16", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 3},
			AETH: wire.AETH{Syndrome: wire.AckCredits(16), MSN: 1}}},
		{"NAK PSN sequence error psn=3 msn=1", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 3},
			AETH: wire.AETH{Syndrome: wire.NAKSequence, MSN: 1}}},
		{"RNR NAK 0.64 ms psn=3 msn=1", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 3},
			AETH: wire.AETH{Syndrome: wire.RNRNak(12), MSN: 1}}},
		{"Syndrome(0x40) psn=3 msn=1", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: 3},
			AETH: wire.AETH{Syndrome: 0x40, MSN: 1}}},
		{"READ Response Only NAK remote access error psn=3 msn=1 (0 B)",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRespOnly, PSN: 3},
				AETH: wire.AETH{Syndrome: wire.NAKRemoteAccess, MSN: 1}}},
		{"FetchAdd psn=4 va=0x1000 rkey=0x5 add=0x10",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCFetchAdd, PSN: 4},
				Atomic: wire.AtomicETH{VA: 0x1000, RKey: 5, Swap: 16}}},
		{"CmpSwap psn=4 va=0x1000 rkey=0x5 compare=0x1 swap=0x2",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCCompareSwap, PSN: 4},
				Atomic: wire.AtomicETH{VA: 0x1000, RKey: 5, Swap: 2, Compare: 1}}},
		{"ATOMIC ACK psn=4 msn=9 was=0x2a", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAtomicAck, PSN: 4},
			AETH: wire.AETH{Syndrome: wire.AckNoCredits, MSN: 9}, AtomicAck: 42}},
		{"FLUSH psn=4 global persistent region va=0x7f0012345000 len=5000 rkey=0x1234",
			wire.Packet{BTH: wire.BTH{Opcode: wire.RCFlush, PSN: 4},
				FETH: wire.FETH{Placement: 3, Selectivity: wire.FlushRegion}, RETH: reth}},
		{"UC SEND Middle psn=5 (1024 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.UCSendMiddle, PSN: 5}, Payload: kib}},
		{"UD SEND Only psn=5 srcqp=0x11 qkey=0x11111111 (1024 B)",
			wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, PSN: 5}, DETH: wire.DETH{SrcQP: 0x11, QKey: 0x11111111},
				Payload: kib}},
		{"XRC SEND Only psn=5 srq=7 (1024 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.XRCSendOnly, PSN: 5}, XRCSRQ: 7,
			Payload: kib}},
		{"CNP", wire.Packet{BTH: wire.BTH{Opcode: wire.CNP, BECN: true}, Payload: make([]byte, 16)}},
	} {
		if got := Label(&c.p); got != c.want {
			t.Errorf("Label = %q, want %q", got, c.want)
		}
	}
}

// mad returns a management datagram.
func mad(class uint8, attr wire.CMAttr) []byte {
	var b [wire.MADLen]byte
	(&wire.MADHeader{Class: class, Attr: attr}).Put(&b)
	return b[:]
}

func TestShortLabel(t *testing.T) {
	for _, c := range []struct {
		want string
		p    wire.Packet
	}{
		{"WRITE Only imm psn=1 AckReq len=5 (5 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteOnlyImm, PSN: 1,
			AckReq: true}, RETH: wire.RETH{VA: 1, RKey: 2, Len: 5}, Imm: 3, Payload: make([]byte, 5)}},
		{"ATOMIC ACK psn=4 msn=9", wire.Packet{BTH: wire.BTH{Opcode: wire.RCAtomicAck, PSN: 4},
			AETH: wire.AETH{Syndrome: wire.AckNoCredits, MSN: 9}, AtomicAck: 42}},
		{"CM DREQ", wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, DestQP: ib.QPNGSI, AckReq: true},
			Payload: mad(wire.MADClassCM, wire.AttrDREQ)}},
		{"MAD", wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, DestQP: ib.QPNGSI}, Payload: mad(3, wire.AttrDREQ)}},
		{"UD SEND Only psn=5 (256 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, DestQP: 2, PSN: 5},
			Payload: mad(wire.MADClassCM, wire.AttrDREQ)}},
		{"UD SEND Only psn=5 (0 B)", wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, PSN: 5},
			DETH: wire.DETH{SrcQP: 0x11, QKey: 0x11111111}}},
	} {
		if got := ShortLabel(&c.p); got != c.want {
			t.Errorf("ShortLabel = %q, want %q", got, c.want)
		}
	}
}

// TestLabelTotal: every opcode and syndrome has some text, also unknown ones.
func TestLabelTotal(t *testing.T) {
	for i := range 1 << 16 {
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.Opcode(i >> 8), PSN: ib.PSNMask},
			AETH: wire.AETH{Syndrome: wire.Syndrome(i)}}
		if Label(&p) == "" {
			t.Fatalf("opcode %#x syndrome %#x has no label", i>>8, i&0xFF)
		}
	}
}

func TestElapsed(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0", 1: "0.001 us", 120: "0.120 us", 999: "0.999 us", 1000: "1.00 us", 1234: "1.23 us", 9994: "9.99 us",
		9996:   "10.0 us",
		99_949: "99.9 us", 99_960: "100 us", 999_400: "999 us", 999_600: "1.00 ms", 67_108_864: "67.1 ms",
		1e9: "1.00 s", 12345e9: "12345 s",
		-1234: "-1.23 us",
	} {
		if got := Elapsed(ns); got != want {
			t.Errorf("Elapsed(%d) = %q, want %q", ns, got, want)
		}
	}
}
