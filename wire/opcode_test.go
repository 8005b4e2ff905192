package wire

import (
	"bytes"
	"testing"
)

// opcodeRows is the list of valid opcodes with the length of their headers, added
// up from the specification's figures: BTH 12, XRCETH 4, DETH 8, FETH 4, RETH 16,
// AtomicETH 28, AETH 4, AtomicAckETH 8, ImmDt 4, IETH 4.
var opcodeRows = []struct {
	op      Opcode
	value   uint8
	len     int
	headers HeaderSet
	name    string
}{
	{RCSendFirst, 0x00, 12, 0, "RC SEND First"},
	{RCSendMiddle, 0x01, 12, 0, "RC SEND Middle"},
	{RCSendLast, 0x02, 12, 0, "RC SEND Last"},
	{RCSendLastImm, 0x03, 16, HasImm, "RC SEND Last with Immediate"},
	{RCSendOnly, 0x04, 12, 0, "RC SEND Only"},
	{RCSendOnlyImm, 0x05, 16, HasImm, "RC SEND Only with Immediate"},
	{RCWriteFirst, 0x06, 28, HasRETH, "RC RDMA WRITE First"},
	{RCWriteMiddle, 0x07, 12, 0, "RC RDMA WRITE Middle"},
	{RCWriteLast, 0x08, 12, 0, "RC RDMA WRITE Last"},
	{RCWriteLastImm, 0x09, 16, HasImm, "RC RDMA WRITE Last with Immediate"},
	{RCWriteOnly, 0x0A, 28, HasRETH, "RC RDMA WRITE Only"},
	{RCWriteOnlyImm, 0x0B, 32, HasRETH | HasImm, "RC RDMA WRITE Only with Immediate"},
	{RCReadRequest, 0x0C, 28, HasRETH, "RC RDMA READ Request"},
	{RCReadRespFirst, 0x0D, 16, HasAETH, "RC RDMA READ Response First"},
	{RCReadRespMiddle, 0x0E, 12, 0, "RC RDMA READ Response Middle"},
	{RCReadRespLast, 0x0F, 16, HasAETH, "RC RDMA READ Response Last"},
	{RCReadRespOnly, 0x10, 16, HasAETH, "RC RDMA READ Response Only"},
	{RCAck, 0x11, 16, HasAETH, "RC Acknowledge"},
	{RCAtomicAck, 0x12, 24, HasAETH | HasAtomicAckETH, "RC ATOMIC Acknowledge"},
	{RCCompareSwap, 0x13, 40, HasAtomicETH, "RC CmpSwap"},
	{RCFetchAdd, 0x14, 40, HasAtomicETH, "RC FetchAdd"},
	{RCSendLastInv, 0x16, 16, HasIETH, "RC SEND Last with Invalidate"},
	{RCSendOnlyInv, 0x17, 16, HasIETH, "RC SEND Only with Invalidate"},
	{RCFlush, 0x1C, 32, HasFETH | HasRETH, "RC FLUSH"},
	{RCAtomicWrite, 0x1D, 28, HasRETH, "RC ATOMIC WRITE"},

	{UCSendFirst, 0x20, 12, 0, "UC SEND First"},
	{UCSendMiddle, 0x21, 12, 0, "UC SEND Middle"},
	{UCSendLast, 0x22, 12, 0, "UC SEND Last"},
	{UCSendLastImm, 0x23, 16, HasImm, "UC SEND Last with Immediate"},
	{UCSendOnly, 0x24, 12, 0, "UC SEND Only"},
	{UCSendOnlyImm, 0x25, 16, HasImm, "UC SEND Only with Immediate"},
	{UCWriteFirst, 0x26, 28, HasRETH, "UC RDMA WRITE First"},
	{UCWriteMiddle, 0x27, 12, 0, "UC RDMA WRITE Middle"},
	{UCWriteLast, 0x28, 12, 0, "UC RDMA WRITE Last"},
	{UCWriteLastImm, 0x29, 16, HasImm, "UC RDMA WRITE Last with Immediate"},
	{UCWriteOnly, 0x2A, 28, HasRETH, "UC RDMA WRITE Only"},
	{UCWriteOnlyImm, 0x2B, 32, HasRETH | HasImm, "UC RDMA WRITE Only with Immediate"},

	{UDSendOnly, 0x64, 20, HasDETH, "UD SEND Only"},
	{UDSendOnlyImm, 0x65, 24, HasDETH | HasImm, "UD SEND Only with Immediate"},
	{CNP, 0x81, 12, 0, "CNP"},
	{SACKOpcode, 0xC1, 12, 0, "SACK"},

	{XRCSendFirst, 0xA0, 16, HasXRCETH, "XRC SEND First"},
	{XRCSendMiddle, 0xA1, 16, HasXRCETH, "XRC SEND Middle"},
	{XRCSendLast, 0xA2, 16, HasXRCETH, "XRC SEND Last"},
	{XRCSendLastImm, 0xA3, 20, HasXRCETH | HasImm, "XRC SEND Last with Immediate"},
	{XRCSendOnly, 0xA4, 16, HasXRCETH, "XRC SEND Only"},
	{XRCSendOnlyImm, 0xA5, 20, HasXRCETH | HasImm, "XRC SEND Only with Immediate"},
	{XRCWriteFirst, 0xA6, 32, HasXRCETH | HasRETH, "XRC RDMA WRITE First"},
	{XRCWriteMiddle, 0xA7, 16, HasXRCETH, "XRC RDMA WRITE Middle"},
	{XRCWriteLast, 0xA8, 16, HasXRCETH, "XRC RDMA WRITE Last"},
	{XRCWriteLastImm, 0xA9, 20, HasXRCETH | HasImm, "XRC RDMA WRITE Last with Immediate"},
	{XRCWriteOnly, 0xAA, 32, HasXRCETH | HasRETH, "XRC RDMA WRITE Only"},
	{XRCWriteOnlyImm, 0xAB, 36, HasXRCETH | HasRETH | HasImm, "XRC RDMA WRITE Only with Immediate"},
	{XRCReadRequest, 0xAC, 32, HasXRCETH | HasRETH, "XRC RDMA READ Request"},
	{XRCReadRespFirst, 0xAD, 16, HasAETH, "XRC RDMA READ Response First"},
	{XRCReadRespMiddle, 0xAE, 12, 0, "XRC RDMA READ Response Middle"},
	{XRCReadRespLast, 0xAF, 16, HasAETH, "XRC RDMA READ Response Last"},
	{XRCReadRespOnly, 0xB0, 16, HasAETH, "XRC RDMA READ Response Only"},
	{XRCAck, 0xB1, 16, HasAETH, "XRC Acknowledge"},
	{XRCAtomicAck, 0xB2, 24, HasAETH | HasAtomicAckETH, "XRC ATOMIC Acknowledge"},
	{XRCCompareSwap, 0xB3, 44, HasXRCETH | HasAtomicETH, "XRC CmpSwap"},
	{XRCFetchAdd, 0xB4, 44, HasXRCETH | HasAtomicETH, "XRC FetchAdd"},
	{XRCSendLastInv, 0xB6, 20, HasXRCETH | HasIETH, "XRC SEND Last with Invalidate"},
	{XRCSendOnlyInv, 0xB7, 20, HasXRCETH | HasIETH, "XRC SEND Only with Invalidate"},
	{XRCFlush, 0xBC, 36, HasXRCETH | HasFETH | HasRETH, "XRC FLUSH"},
	{XRCAtomicWrite, 0xBD, 32, HasXRCETH | HasRETH, "XRC ATOMIC WRITE"},
}

func TestOpcodeTable(t *testing.T) {
	valid := map[Opcode]bool{}
	for _, row := range opcodeRows {
		valid[row.op] = true
		if uint8(row.op) != row.value {
			t.Errorf("%s is %#02x, want %#02x", row.name, uint8(row.op), row.value)
		}
		if got := row.op.HeaderLen(); got != row.len {
			t.Errorf("%s: header length %d, want %d", row.name, got, row.len)
		}
		if got := row.op.Headers(); got != row.headers {
			t.Errorf("%s: headers %b, want %b", row.name, got, row.headers)
		}
		if got := row.op.String(); got != row.name {
			t.Errorf("%#02x is called %q, want %q", row.value, got, row.name)
		}
		if row.len > MaxHeaderLen {
			t.Errorf("%s: headers of %d bytes, want at most %d", row.name, row.len, MaxHeaderLen)
		}
		if row.op.Service().Opcode(row.op.Op()) != row.op {
			t.Errorf("%s: service %v and operation %v make %v, want %v", row.name, row.op.Service(), row.op.Op(),
				row.op.Service().Opcode(row.op.Op()), row.op)
		}
	}
	for i := range 256 {
		op := Opcode(i)
		if op.Valid() != valid[op] {
			t.Errorf("%#02x: Valid is %v, want %v", i, op.Valid(), valid[op])
		}
		if !op.Valid() && (op.HeaderLen() != 0 || op.IsRequest() || op.IsResponse() || op.HasPayload() || op.Starts() ||
			op.Ends()) {
			t.Errorf("%#02x: not valid, but has properties", i)
		}
	}
}

// Short names are the same in every service, and no two operations share one.
func TestOpNames(t *testing.T) {
	names := map[string]Op{}
	for _, row := range opcodeRows {
		if row.op == CNP {
			continue
		}
		name := row.op.Op().String()
		if op, ok := names[name]; ok && op != row.op.Op() {
			t.Errorf("%s and %#02x are both called %q", row.name, uint8(op), name)
		}
		names[name] = row.op.Op()
	}
	for op, want := range map[Op]string{OpSendOnlyInv: "SEND Only inv", OpWriteLastImm: "WRITE Last imm",
		OpReadRespFirst: "READ Response First", OpAck: "ACK", OpAtomicAck: "ATOMIC ACK", OpFlush: "FLUSH",
		0x15: "Op(0x15)", 0x24: "Op(0x24)"} {
		if got := op.String(); got != want {
			t.Errorf("operation %#02x is called %q, want %q", uint8(op), got, want)
		}
	}
}

// Each operation belongs to exactly the classes that its row names.
func TestOpcodeClasses(t *testing.T) {
	classes := []struct {
		name string
		in   func(Opcode) bool
		ops  []Op
	}{
		{"First", Opcode.First, []Op{OpSendFirst, OpWriteFirst, OpReadRespFirst}},
		{"Middle", Opcode.Middle, []Op{OpSendMiddle, OpWriteMiddle, OpReadRespMiddle}},
		{"Last", Opcode.Last, []Op{OpSendLast, OpSendLastImm, OpSendLastInv, OpWriteLast, OpWriteLastImm,
			OpReadRespLast}},
		{"Only", Opcode.Only, []Op{OpSendOnly, OpSendOnlyImm, OpSendOnlyInv, OpWriteOnly, OpWriteOnlyImm, OpReadRequest,
			OpReadRespOnly, OpCompareSwap, OpFetchAdd, OpFlush, OpAtomicWrite}},
		{"IsSend", Opcode.IsSend, []Op{OpSendFirst, OpSendMiddle, OpSendLast, OpSendLastImm, OpSendOnly, OpSendOnlyImm,
			OpSendLastInv, OpSendOnlyInv}},
		{"IsWrite", Opcode.IsWrite, []Op{OpWriteFirst, OpWriteMiddle, OpWriteLast, OpWriteLastImm, OpWriteOnly,
			OpWriteOnlyImm}},
		{"IsRead", Opcode.IsRead, []Op{OpReadRequest}},
		{"IsReadResp", Opcode.IsReadResp, []Op{OpReadRespFirst, OpReadRespMiddle, OpReadRespLast, OpReadRespOnly}},
		{"IsAtomic", Opcode.IsAtomic, []Op{OpCompareSwap, OpFetchAdd}},
		{"IsResponse", Opcode.IsResponse, []Op{OpReadRespFirst, OpReadRespMiddle, OpReadRespLast, OpReadRespOnly, OpAck,
			OpAtomicAck}},
		{"no payload", func(o Opcode) bool { return !o.HasPayload() },
			[]Op{OpReadRequest, OpAck, OpAtomicAck, OpCompareSwap, OpFetchAdd, OpFlush}},
	}
	for _, c := range classes {
		member := map[Op]bool{}
		for _, op := range c.ops {
			member[op] = true
		}
		for _, row := range opcodeRows {
			if row.op == CNP || row.op == SACKOpcode {
				continue // no operation of a service
			}
			if got, want := c.in(row.op), member[row.op.Op()]; got != want {
				t.Errorf("%s of %v is %v, want %v", c.name, row.op, got, want)
			}
		}
	}
	for _, row := range opcodeRows {
		op := row.op
		if op.Starts() != (op.First() || op.Only()) || op.Ends() != (op.Last() || op.Only()) {
			t.Errorf("%v: Starts %v, Ends %v; want %v, %v", op, op.Starts(), op.Ends(), op.First() || op.Only(),
				op.Last() || op.Only())
		}
		if op != CNP && op.IsRequest() == op.IsResponse() {
			t.Errorf("%v: request %v, response %v; want one of them", op, op.IsRequest(), op.IsResponse())
		}
	}
}

// A packet of every opcode, with every bit of every header in play, survives
// encoding and decoding.
func TestOpcodesRoundTrip(t *testing.T) {
	for _, row := range opcodeRows {
		for _, fill := range []byte{0x00, 0xFF, 0x5A} {
			in := bytes.Repeat([]byte{fill}, row.len)
			in[0] = byte(row.op)
			in[1] &^= 0x3F // no pad, version 0
			for i := BTHLen; i < len(in); i++ {
				in[i] ^= byte(i)
			}
			in = append(in, make([]byte, goodPayload(row.op))...)
			var p Packet
			if err := p.Decode(in); err != nil {
				t.Fatalf("%v: %v", row.op, err)
			}
			if out := append(p.AppendHeaders(nil), p.Payload...); !bytes.Equal(in, out) {
				t.Errorf("%v:\n got % x\nwant % x", row.op, out, in)
			}
		}
	}
}

// goodPayload returns a payload length that the opcode allows.
func goodPayload(op Opcode) int {
	switch {
	case op == CNP:
		return 16
	case op.HasPayload():
		return 8
	}
	return 0
}
