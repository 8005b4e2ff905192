package decode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/wire"
)

// madPacket returns an IP packet that carries a MAD from one QP 1 to the other, A's
// if back is not set.
func madPacket(back bool, psn ib.PSN, h wire.MADHeader, m interface{ Put(*[wire.MADLen]byte) }) []byte {
	var mad [wire.MADLen]byte
	h.BaseVersion, h.ClassVersion, h.Method = wire.MADBaseVersion, wire.MADClassVersionCM, wire.MADMethodSend
	h.Put(&mad)
	if m != nil {
		m.Put(&mad)
	}
	o := outer()
	if back {
		o.Src, o.Dst = o.Dst, o.Src
	}
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, PKey: ib.DefaultPKey, DestQP: ib.QPNGSI, PSN: psn},
		DETH: wire.DETH{QKey: 0x80010000, SrcQP: ib.QPNGSI}}
	b := append(p.AppendHeaders(nil), mad[:]...)
	b = append(b, make([]byte, wire.ICRCLen)...)
	o.Seal(b)
	return ipPacket(o, b)
}

// conversation has every message of the connection manager, every field with a
// value of its own, and what is none of them.
func conversation() []byte {
	o := outer()
	header := make([]byte, wire.CMHeaderLen, wire.REQPrivateLen)
	(&wire.CMHeader{Src: o.Src, Dst: o.Dst, SrcPort: 40000}).Put(header)
	alternate := wire.CMPath{LocalLID: 1, RemoteLID: 2, LocalGID: ib.GID{0: 0xFD, 15: 1},
		RemoteGID: ib.GID{0: 0xFD, 15: 2}, FlowLabel: 0x12345, Rate: 3, TrafficClass: 0x68, HopLimit: 5, SL: 6,
		SubnetLocal: true, AckTimeout: 17}
	req := wire.REQ{LocalID: 0xa1, ServiceID: ib.PortSpaceTCP.ServiceID(7471), CAGUID: 0x5054000000000001, QKey: 0x77,
		QPN: 0x11, ResponderResources: 4, InitiatorDepth: 5, RemoteResponseTimeout: 20, Transport: wire.CMTransportExt,
		FlowControl: true, StartingPSN: 100, LocalResponseTimeout: 21, RetryCount: 6, PKey: ib.DefaultPKey,
		PathMTU: ib.MTU4096, RDCExists: true, RNRRetry: 7, MaxCMRetries: 15, SRQ: true, ExtTransport: 1,
		Primary: wire.CMPath{LocalGID: o.Src, RemoteGID: o.Dst, HopLimit: 64, AckTimeout: 19}, Alternate: alternate,
		PrivateData: append(header, "a question that takes more than a line"...)}
	v6 := make([]byte, wire.CMHeaderLen)
	(&wire.CMHeader{Src: ib.GID{0: 0xFD, 15: 1}, Dst: ib.GID{0: 0xFD, 15: 2}, SrcPort: 40001}).Put(v6)
	var packets [][]byte
	for i, c := range []struct {
		back bool
		attr wire.CMAttr
		m    interface{ Put(*[wire.MADLen]byte) }
	}{
		{false, wire.AttrREQ, &req},
		{true, wire.AttrMRA, &wire.MRA{LocalID: 0xb1, RemoteID: 0xa1, Message: wire.MessageREQ, ServiceTimeout: 22,
			PrivateData: []byte("wait")}},
		{true, wire.AttrREP, &wire.REP{LocalID: 0xb1, RemoteID: 0xa1, QKey: 0x88, QPN: 0x22, StartingPSN: 200,
			ResponderResources: 5, InitiatorDepth: 4, TargetACKDelay: 15, FailoverAccepted: 2, FlowControl: true,
			RNRRetry: 3, SRQ: true, CAGUID: 0x5054000000000002, PrivateData: []byte("yes")}},
		{false, wire.AttrMRA, &wire.MRA{LocalID: 0xa1, RemoteID: 0xb1, Message: wire.MessageOther, ServiceTimeout: 0}},
		{false, wire.AttrRTU, &wire.RTU{LocalID: 0xa1, RemoteID: 0xb1, PrivateData: []byte{0, 1}}},
		{false, wire.AttrDREQ, &wire.DREQ{LocalID: 0xa1, RemoteID: 0xb1, RemoteQPN: 0x22}},
		{true, wire.AttrDREP, &wire.DREP{LocalID: 0xb1, RemoteID: 0xa1}},
		{false, wire.AttrREQ, &wire.REQ{LocalID: 0xa2, ServiceID: 0x1000000000000001, QPN: 0x12, PathMTU: 0,
			PrivateData: []byte("no header")}},
		{true, wire.AttrREJ, &wire.REJ{LocalID: 0xb2, RemoteID: 0xa2, Message: wire.MessageREQ,
			Reason: ib.RejectInvalidServiceID, Info: []byte{9, 0}, PrivateData: []byte("no")}},
		{false, wire.AttrREJ, &wire.REJ{LocalID: 0xa2, RemoteID: 0xb2, Message: wire.MessageREP,
			Reason: ib.RejectConsumer}},
		{true, wire.AttrREJ, &wire.REJ{RemoteID: 0xa3, Message: wire.MessageOther, Reason: 999}},
		{false, wire.AttrREQ, &wire.REQ{LocalID: 0xa3, ServiceID: ib.PortSpaceIB.ServiceID(1), PathMTU: ib.MTU256,
			PrivateData: []byte{7}}},
		{false, wire.AttrSIDRREQ, &wire.SIDRREQ{RequestID: 0xa4, PKey: ib.DefaultPKey,
			ServiceID: ib.PortSpaceUDP.ServiceID(7174), PrivateData: v6}},
		{true, wire.AttrSIDRREP, &wire.SIDRREP{RequestID: 0xa4, Status: ib.SIDRValid, QPN: 0x33,
			ServiceID: ib.PortSpaceUDP.ServiceID(7174), QKey: 0x1234567, PrivateData: []byte("here")}},
		{true, wire.AttrSIDRREP, &wire.SIDRREP{RequestID: 0xa5, Status: ib.SIDRUnsupported, ServiceID: 7,
			Info: []byte{1}}},
		{false, wire.AttrLAP, nil},
		{true, 0x7F, nil},
	} {
		h := wire.MADHeader{Class: wire.MADClassCM, TID: uint64(i), Attr: c.attr, Modifier: uint32(i) << 8}
		packets = append(packets, madPacket(c.back, ib.PSN(i), h, c.m))
	}
	packets = append(packets, madPacket(false, 99, wire.MADHeader{Class: 3, Attr: wire.AttrREQ}, nil))
	return pcap(capfile.Raw, packets...)
}

// TestConnectionManager: all messages in words, field by field, and as a ladder.
func TestConnectionManager(t *testing.T) {
	file := conversation()
	for name, opts := range map[string]Options{"cm.txt": {}, "cm-fields.txt": {Verbose: true},
		"cm-ladder.txt": {Ladder: true, Terminal: term.Terminal{Width: 110}}} {
		opts.Name = "cm.pcap"
		got, sum := run(t, file, opts)
		if sum.Problems != 0 || sum.RoCE != 18 {
			t.Errorf("%s: %+v, want 18 packets without problems", name, sum)
		}
		golden(t, name, got)
	}
}

// TestCutMAD: of a datagram that was not captured whole, nothing is said that its
// bytes do not.
func TestCutMAD(t *testing.T) {
	const captured = 80 // up to the communication ID
	packet := madPacket(false, 1, wire.MADHeader{Class: wire.MADClassCM, Attr: wire.AttrREQ},
		&wire.REQ{LocalID: 7, QPN: 8})
	file := pcap(capfile.Raw, packet)
	binary.LittleEndian.PutUint32(file[24+8:], captured)
	file = file[:24+16+captured]
	for want, opts := range map[string]Options{
		"payload    256 bytes, not captured whole": {Verbose: true},
		"CM REQ #1": {Ladder: true},
	} {
		if text, _ := run(t, file, opts); !strings.Contains(text, want) || strings.Contains(text, "my qp") {
			t.Errorf("want %q:\n%s", want, text)
		}
	}
}

// FuzzMAD: any datagram has a name and fields, whatever message it claims to be.
func FuzzMAD(f *testing.F) {
	for attr := wire.AttrREQ; attr <= wire.AttrAPR; attr++ {
		for _, fill := range []byte{0, 0xFF} {
			mad := (*[wire.MADLen]byte)(bytes.Repeat([]byte{fill}, wire.MADLen))
			(&wire.MADHeader{Class: wire.MADClassCM, Attr: attr}).Put(mad)
			f.Add(mad[:])
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var mad [wire.MADLen]byte
		copy(mad[:], in)
		var b strings.Builder
		madFields(func(name, format string, args ...any) { fmt.Fprintf(&b, name+" "+format+"\n", args...) }, &mad)
		name, says := madText(&wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, DestQP: ib.QPNGSI}, Payload: mad[:]})
		if text := b.String() + says; name == "" || !strings.HasPrefix(text, "MAD ") || strings.Contains(text, "%!") {
			t.Errorf("%q: %q, want a MAD with a name", name, text)
		}
	})
}
