package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/goroce/goroce/ib"
)

// cmMessage is what all messages of the connection manager have.
type cmMessage interface {
	Decode(mad *[MADLen]byte)
	Put(mad *[MADLen]byte)
}

// cmMessages returns an empty message of each kind.
func cmMessages() map[CMAttr]cmMessage {
	return map[CMAttr]cmMessage{
		AttrREQ: new(REQ), AttrMRA: new(MRA), AttrREJ: new(REJ), AttrREP: new(REP), AttrRTU: new(RTU),
		AttrDREQ: new(DREQ),
		AttrDREP: new(DREP), AttrSIDRREQ: new(SIDRREQ), AttrSIDRREP: new(SIDRREP),
	}
}

// madsOf returns the MADs in a capture's packets to QP 1.
func madsOf(t testing.TB, path string) (mads []*[MADLen]byte) {
	t.Helper()
	for _, b := range readCapture(t, path) {
		_, p := mustDecode(t, b)
		if mad := p.MAD(); mad != nil {
			mads = append(mads, mad)
		}
	}
	return mads
}

const rpingPath = "testdata/rping.pcap"

// What two Linux hosts said to each other before and after rping, field by field;
// and encoded again, to the same bytes.
func TestCMOfLinux(t *testing.T) {
	client, server := ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 168, 14: 77, 15: 2},
		ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 168, 14: 77, 15: 1}
	const clientID, serverID = 0x16b9caac, 0x7d0ab7be
	path := CMPath{LocalLID: 0xFFFF, RemoteLID: 0xFFFF, LocalGID: client, RemoteGID: server, FlowLabel: 0xcd1b0,
		HopLimit: 64, AckTimeout: 19}
	header := make([]byte, REQPrivateLen)
	(&CMHeader{Src: client, Dst: server, SrcPort: 60694}).Put(header)
	want := []struct {
		attr CMAttr
		msg  cmMessage
	}{
		{AttrREQ, &REQ{LocalID: clientID, ServiceID: ib.PortSpaceTCP.ServiceID(7174), CAGUID: 0x505400fffe000002,
			QPN: 0x29, ResponderResources: 1, InitiatorDepth: 1, RemoteResponseTimeout: 20, StartingPSN: 0x8797e9,
			LocalResponseTimeout: 20, RetryCount: 7, PKey: ib.DefaultPKey, PathMTU: ib.MTU1024, RNRRetry: 7,
			MaxCMRetries: 15, Primary: path, PrivateData: header}},
		{AttrREP, &REP{LocalID: serverID, RemoteID: clientID, QPN: 0x29, StartingPSN: 0x2d5803, ResponderResources: 1,
			InitiatorDepth: 1, TargetACKDelay: 15, RNRRetry: 7, CAGUID: 0x505400fffe000001,
			PrivateData: make([]byte, REPPrivateLen)}},
		{AttrRTU, &RTU{LocalID: clientID, RemoteID: serverID, PrivateData: make([]byte, RTUPrivateLen)}},
		{AttrDREQ, &DREQ{LocalID: clientID, RemoteID: serverID, RemoteQPN: 0x29,
			PrivateData: make([]byte, DREQPrivateLen)}},
		{AttrDREP, &DREP{LocalID: serverID, RemoteID: clientID, PrivateData: make([]byte, DREPPrivateLen)}},
	}
	mads := madsOf(t, rpingPath)
	if len(mads) != len(want) {
		t.Fatalf("%d MADs, want %d", len(mads), len(want))
	}
	for i, w := range want {
		var h MADHeader
		h.Decode(mads[i])
		wantHeader := MADHeader{BaseVersion: MADBaseVersion, Class: MADClassCM, ClassVersion: MADClassVersionCM,
			Method: MADMethodSend, TID: 0x2_accab916, Attr: w.attr}
		if diff := cmp.Diff(wantHeader, h); diff != "" {
			t.Errorf("%v: header (-want +got):\n%s", w.attr, diff)
		}
		m := cmMessages()[w.attr]
		m.Decode(mads[i])
		if diff := cmp.Diff(w.msg, m); diff != "" {
			t.Errorf("%v (-want +got):\n%s", w.attr, diff)
		}
		if again := put(&h, m); again != *mads[i] {
			t.Errorf("%v encoded again:\n got % x\nwant % x", w.attr, again, *mads[i])
		}
	}
}

// put writes a MAD over other bytes.
func put(h *MADHeader, m cmMessage) (mad [MADLen]byte) {
	for i := range mad {
		mad[i] = 0xA5
	}
	h.Put(&mad)
	m.Put(&mad)
	return mad
}

// cmLayout says for every field which bits it has: what Put writes, from offset at
// of the message, when only this field is set, and set to all ones.
var cmLayout = []struct {
	msg  cmMessage
	at   int
	want string
}{
	{&REQ{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&REQ{ServiceID: ^uint64(0)}, 8, "ffffffffffffffff"},
	{&REQ{CAGUID: ^uint64(0)}, 16, "ffffffffffffffff"},
	{&REQ{QKey: ^uint32(0)}, 28, "ffffffff"},
	{&REQ{QPN: ^ib.QPN(0)}, 32, "ffffff"},
	{&REQ{ResponderResources: 0xFF}, 35, "ff"},
	{&REQ{InitiatorDepth: 0xFF}, 39, "ff"},
	{&REQ{RemoteResponseTimeout: 0xFF}, 43, "f8"},
	{&REQ{Transport: 0xFF}, 43, "06"},
	{&REQ{FlowControl: true}, 43, "01"},
	{&REQ{StartingPSN: ^ib.PSN(0)}, 44, "ffffff"},
	{&REQ{LocalResponseTimeout: 0xFF}, 47, "f8"},
	{&REQ{RetryCount: 0xFF}, 47, "07"},
	{&REQ{PKey: 0xFFFF}, 48, "ffff"},
	{&REQ{PathMTU: ib.MTU4096}, 50, "50"},
	{&REQ{PathMTU: 1500}, 50, "00"},
	{&REQ{RDCExists: true}, 50, "08"},
	{&REQ{RNRRetry: 0xFF}, 50, "07"},
	{&REQ{MaxCMRetries: 0xFF}, 51, "f0"},
	{&REQ{SRQ: true}, 51, "08"},
	{&REQ{ExtTransport: 0xFF}, 51, "07"},
	{&REQ{Primary: CMPath{LocalLID: 0xFFFF}}, 52, "ffff"},
	{&REQ{Primary: CMPath{RemoteLID: 0xFFFF}}, 54, "ffff"},
	{&REQ{Primary: CMPath{LocalGID: ones}}, 56, strings.Repeat("ff", 16)},
	{&REQ{Primary: CMPath{RemoteGID: ones}}, 72, strings.Repeat("ff", 16)},
	{&REQ{Primary: CMPath{FlowLabel: ^uint32(0)}}, 88, "fffff000"},
	{&REQ{Primary: CMPath{Rate: 0xFF}}, 91, "3f"},
	{&REQ{Primary: CMPath{TrafficClass: 0xFF}}, 92, "ff"},
	{&REQ{Primary: CMPath{HopLimit: 0xFF}}, 93, "ff"},
	{&REQ{Primary: CMPath{SL: 0xFF}}, 94, "f0"},
	{&REQ{Primary: CMPath{SubnetLocal: true}}, 94, "08"},
	{&REQ{Primary: CMPath{AckTimeout: 0xFF}}, 95, "f8"},
	{&REQ{Alternate: CMPath{LocalLID: 0xFFFF}}, 96, "ffff"},
	{&REQ{Alternate: CMPath{RemoteLID: 0xFFFF}}, 98, "ffff"},
	{&REQ{Alternate: CMPath{LocalGID: ones}}, 100, strings.Repeat("ff", 16)},
	{&REQ{Alternate: CMPath{RemoteGID: ones}}, 116, strings.Repeat("ff", 16)},
	{&REQ{Alternate: CMPath{FlowLabel: ^uint32(0)}}, 132, "fffff000"},
	{&REQ{Alternate: CMPath{Rate: 0xFF}}, 135, "3f"},
	{&REQ{Alternate: CMPath{TrafficClass: 0xFF}}, 136, "ff"},
	{&REQ{Alternate: CMPath{HopLimit: 0xFF}}, 137, "ff"},
	{&REQ{Alternate: CMPath{SL: 0xFF}}, 138, "f0"},
	{&REQ{Alternate: CMPath{SubnetLocal: true}}, 138, "08"},
	{&REQ{Alternate: CMPath{AckTimeout: 0xFF}}, 139, "f8"},
	{&REQ{PrivateData: long}, 140, strings.Repeat("ff", REQPrivateLen)},
	{&MRA{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&MRA{RemoteID: ^uint32(0)}, 4, "ffffffff"},
	{&MRA{Message: 0xFF}, 8, "c0"},
	{&MRA{ServiceTimeout: 0xFF}, 9, "f8"},
	{&MRA{PrivateData: long}, 10, strings.Repeat("ff", MRAPrivateLen)},
	{&REJ{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&REJ{RemoteID: ^uint32(0)}, 4, "ffffffff"},
	{&REJ{Message: 0xFF}, 8, "c0"},
	{&REJ{Reason: 0xFFFF}, 10, "ffff"},
	{&REJ{Info: long[:2]}, 9, "040000ffff"},
	{&REJ{Info: long}, 9, "900000" + strings.Repeat("ff", REJInfoLen)},
	{&REJ{PrivateData: long}, 84, strings.Repeat("ff", REJPrivateLen)},
	{&REP{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&REP{RemoteID: ^uint32(0)}, 4, "ffffffff"},
	{&REP{QKey: ^uint32(0)}, 8, "ffffffff"},
	{&REP{QPN: ^ib.QPN(0)}, 12, "ffffff"},
	{&REP{StartingPSN: ^ib.PSN(0)}, 20, "ffffff"},
	{&REP{ResponderResources: 0xFF}, 24, "ff"},
	{&REP{InitiatorDepth: 0xFF}, 25, "ff"},
	{&REP{TargetACKDelay: 0xFF}, 26, "f8"},
	{&REP{FailoverAccepted: 0xFF}, 26, "06"},
	{&REP{FlowControl: true}, 26, "01"},
	{&REP{RNRRetry: 0xFF}, 27, "e0"},
	{&REP{SRQ: true}, 27, "10"},
	{&REP{CAGUID: ^uint64(0)}, 28, "ffffffffffffffff"},
	{&REP{PrivateData: long}, 36, strings.Repeat("ff", REPPrivateLen)},
	{&RTU{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&RTU{RemoteID: ^uint32(0)}, 4, "ffffffff"},
	{&RTU{PrivateData: long}, 8, strings.Repeat("ff", RTUPrivateLen)},
	{&DREQ{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&DREQ{RemoteID: ^uint32(0)}, 4, "ffffffff"},
	{&DREQ{RemoteQPN: ^ib.QPN(0)}, 8, "ffffff"},
	{&DREQ{PrivateData: long}, 12, strings.Repeat("ff", DREQPrivateLen)},
	{&DREP{LocalID: ^uint32(0)}, 0, "ffffffff"},
	{&DREP{RemoteID: ^uint32(0)}, 4, "ffffffff"},
	{&DREP{PrivateData: long}, 8, strings.Repeat("ff", DREPPrivateLen)},
	{&SIDRREQ{RequestID: ^uint32(0)}, 0, "ffffffff"},
	{&SIDRREQ{PKey: 0xFFFF}, 4, "ffff"},
	{&SIDRREQ{ServiceID: ^uint64(0)}, 8, "ffffffffffffffff"},
	{&SIDRREQ{PrivateData: long}, 16, strings.Repeat("ff", SIDRREQPrivateLen)},
	{&SIDRREP{RequestID: ^uint32(0)}, 0, "ffffffff"},
	{&SIDRREP{Status: 0xFF}, 4, "ff"},
	{&SIDRREP{QPN: ^ib.QPN(0)}, 8, "ffffff"},
	{&SIDRREP{ServiceID: ^uint64(0)}, 12, "ffffffffffffffff"},
	{&SIDRREP{QKey: ^uint32(0)}, 20, "ffffffff"},
	{&SIDRREP{Info: long[:2]}, 5, "02" + strings.Repeat("00", 18) + "ffff"},
	{&SIDRREP{Info: long}, 5, "48" + strings.Repeat("00", 18) + strings.Repeat("ff", SIDRREPInfoLen)},
	{&SIDRREP{PrivateData: long}, 96, strings.Repeat("ff", SIDRREPPrivateLen)},
}

var (
	ones = ib.GID(bytes.Repeat([]byte{0xFF}, 16))
	long = bytes.Repeat([]byte{0xFF}, 300) // longer than every field
)

// Each field has the bits that IBTA chapter 12 and Linux's ibta_vol1_c12.h give
// it, and no others; and decodes from them.
func TestCMLayout(t *testing.T) {
	for _, c := range cmLayout {
		var h MADHeader
		want := [MADLen]byte{}
		copy(want[MADHeaderLen+c.at:], unhex(t, c.want))
		got := put(&h, c.msg)
		if got != want {
			t.Errorf("%+v:\n got % x\nwant % x", c.msg, got, want)
		}
		again := reflect.New(reflect.TypeOf(c.msg).Elem()).Interface().(cmMessage)
		again.Decode(&want)
		if got := put(&h, again); got != want {
			t.Errorf("%+v, decoded and encoded:\n got % x\nwant % x", c.msg, got, want)
		}
	}
}

// The MAD header has its fields where IBTA 13.4.3 has them.
func TestMADHeader(t *testing.T) {
	want := MADHeader{BaseVersion: 1, Class: 7, ClassVersion: 2, Method: 3, Status: 0x0405, TID: 0x08090a0b0c0d0e0f,
		Attr: 0x1011, Modifier: 0x14151617}
	mad := [MADLen]byte{4: 0xFF, 7: 0xFF, 19: 0xFF, 24: 0xFF}
	want.Put(&mad)
	if diff := cmp.Diff(unhex(t, "010702030405000008090a0b0c0d0e0f1011000014151617ff"),
		mad[:MADHeaderLen+1]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var got MADHeader
	if got.Decode(&mad); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Only datagrams of 256 bytes to QP 1 are MADs.
func TestMADOfPacket(t *testing.T) {
	good := Packet{BTH: BTH{Opcode: UDSendOnly, DestQP: ib.QPNGSI}, Payload: make([]byte, MADLen)}
	if mad := good.MAD(); mad == nil || &mad[0] != &good.Payload[0] {
		t.Error("a MAD is not recognized")
	}
	for name, edit := range map[string]func(p *Packet){
		"other QP": func(p *Packet) { p.DestQP = 2 },
		"RC":       func(p *Packet) { p.Opcode = RCSendOnly },
		"short":    func(p *Packet) { p.Payload = p.Payload[:MADLen-1] },
		"long":     func(p *Packet) { p.Payload = make([]byte, MADLen+1) },
	} {
		p := good
		if edit(&p); p.MAD() != nil {
			t.Errorf("%s: taken for a MAD", name)
		}
	}
}

// A header names messages of the connection manager.
func TestMADName(t *testing.T) {
	for want, h := range map[string]MADHeader{
		"CM REQ": {Class: MADClassCM, Attr: AttrREQ}, "CM SIDR_REP": {Class: MADClassCM, Attr: AttrSIDRREP},
		"CM APR": {Class: MADClassCM, Attr: AttrAPR},
	} {
		if got := h.Name(); got != want {
			t.Errorf("%+v is %q, want %q", h, got, want)
		}
	}
	for _, h := range []MADHeader{{Class: 3, Attr: AttrREQ}, {Class: MADClassCM, Attr: AttrREQ - 1},
		{Class: MADClassCM, Attr: AttrAPR + 1}} {
		if got := h.Name(); got != "MAD" {
			t.Errorf("%+v is %q, want MAD", h, got)
		}
	}
}

// fields draws the values of messages.
type fields struct{ *rapid.T }

// bits draws a number of n bits.
func (f fields) bits(n int) uint64 { return rapid.Uint64Max(1<<n-1).Draw(f.T, "number") }
func (f fields) u8(n int) uint8    { return uint8(f.bits(n)) }
func (f fields) u32() uint32       { return rapid.Uint32().Draw(f.T, "number") }
func (f fields) u64() uint64       { return rapid.Uint64().Draw(f.T, "number") }
func (f fields) bool() bool        { return rapid.Bool().Draw(f.T, "flag") }
func (f fields) qpn() ib.QPN       { return ib.QPN(f.bits(24)) }
func (f fields) psn() ib.PSN       { return ib.PSN(f.bits(24)) }

// data draws at most n bytes.
func (f fields) data(n int) []byte { return rapid.SliceOfN(rapid.Byte(), 0, n).Draw(f.T, "data") }
func (f fields) gid() ib.GID {
	return ib.GID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(f.T, "GID"))
}

func (f fields) path() CMPath {
	return CMPath{LocalLID: uint16(f.bits(16)), RemoteLID: uint16(f.bits(16)), LocalGID: f.gid(), RemoteGID: f.gid(),
		FlowLabel: uint32(f.bits(20)), Rate: f.u8(6), TrafficClass: f.u8(8), HopLimit: f.u8(8), SL: f.u8(4),
		SubnetLocal: f.bool(), AckTimeout: f.u8(5)}
}

// message draws a message of the kind.
func (f fields) message(a CMAttr) cmMessage {
	switch a {
	case AttrREQ:
		return &REQ{LocalID: f.u32(), ServiceID: f.u64(), CAGUID: f.u64(), QKey: f.u32(), QPN: f.qpn(),
			ResponderResources: f.u8(8), InitiatorDepth: f.u8(8), RemoteResponseTimeout: f.u8(5), Transport: f.u8(2),
			FlowControl: f.bool(), StartingPSN: f.psn(), LocalResponseTimeout: f.u8(5), RetryCount: f.u8(3),
			PKey: uint16(f.bits(16)), PathMTU: ib.MTUFromCode(int(f.bits(3))), RDCExists: f.bool(), RNRRetry: f.u8(3),
			MaxCMRetries: f.u8(4), SRQ: f.bool(), ExtTransport: f.u8(3), Primary: f.path(), Alternate: f.path(),
			PrivateData: f.data(REQPrivateLen)}
	case AttrMRA:
		return &MRA{LocalID: f.u32(), RemoteID: f.u32(), Message: CMMessage(f.bits(2)), ServiceTimeout: f.u8(5),
			PrivateData: f.data(MRAPrivateLen)}
	case AttrREJ:
		return &REJ{LocalID: f.u32(), RemoteID: f.u32(), Message: CMMessage(f.bits(2)),
			Reason: ib.RejectReason(f.bits(16)), Info: f.data(REJInfoLen), PrivateData: f.data(REJPrivateLen)}
	case AttrREP:
		return &REP{LocalID: f.u32(), RemoteID: f.u32(), QKey: f.u32(), QPN: f.qpn(), StartingPSN: f.psn(),
			ResponderResources: f.u8(8), InitiatorDepth: f.u8(8), TargetACKDelay: f.u8(5), FailoverAccepted: f.u8(2),
			FlowControl: f.bool(), RNRRetry: f.u8(3), SRQ: f.bool(), CAGUID: f.u64(),
			PrivateData: f.data(REPPrivateLen)}
	case AttrRTU:
		return &RTU{LocalID: f.u32(), RemoteID: f.u32(), PrivateData: f.data(RTUPrivateLen)}
	case AttrDREQ:
		return &DREQ{LocalID: f.u32(), RemoteID: f.u32(), RemoteQPN: f.qpn(), PrivateData: f.data(DREQPrivateLen)}
	case AttrDREP:
		return &DREP{LocalID: f.u32(), RemoteID: f.u32(), PrivateData: f.data(DREPPrivateLen)}
	case AttrSIDRREQ:
		return &SIDRREQ{RequestID: f.u32(), PKey: uint16(f.bits(16)), ServiceID: f.u64(),
			PrivateData: f.data(SIDRREQPrivateLen)}
	default:
		return &SIDRREP{RequestID: f.u32(), Status: ib.SIDRStatus(f.bits(8)), QPN: f.qpn(), ServiceID: f.u64(),
			QKey: f.u32(), Info: f.data(SIDRREPInfoLen), PrivateData: f.data(SIDRREPPrivateLen)}
	}
}

// samePrivate compares decoded private data, which is the whole field, with what
// was put there.
var samePrivate = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".PrivateData" },
	cmp.Comparer(func(a, b []byte) bool { return bytes.Equal(bytes.TrimRight(a, "\x00"), bytes.TrimRight(b, "\x00")) }))

// What is put decodes to the same, for every message that fits its fields.
func TestCMRoundTrip(t *testing.T) {
	for a, got := range cmMessages() {
		t.Run(a.String(), rapid.MakeCheck(func(t *rapid.T) {
			want := fields{t}.message(a)
			mad := put(&MADHeader{}, want)
			got.Decode(&mad)
			if diff := cmp.Diff(want, got, samePrivate); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			before := mad
			if got.Put(&mad); mad != before {
				t.Errorf("put where it was decoded from:\n got % x\nwant % x", mad, before)
			}
		}))
	}
}

// What decodes is part of the MAD: PrivateData all of its field, Info as long as
// the message says and the field is.
func TestCMAlias(t *testing.T) {
	var mad [MADLen]byte
	mad[MADHeaderLen+9] = 0xFF // 127 bytes
	var rej REJ
	rej.Decode(&mad)
	mad[MADHeaderLen+9] = 0
	mad[MADHeaderLen+5] = 0xFF // 255 bytes
	var rep SIDRREP
	rep.Decode(&mad)
	for _, c := range []struct {
		name    string
		data    []byte
		at, len int
	}{
		{"REJ.Info", rej.Info, 12, REJInfoLen}, {"REJ.PrivateData", rej.PrivateData, 84, REJPrivateLen},
		{"SIDRREP.Info", rep.Info, 24, SIDRREPInfoLen}, {"SIDRREP.PrivateData", rep.PrivateData, 96, SIDRREPPrivateLen},
	} {
		if len(c.data) != c.len || cap(c.data) != c.len || &c.data[0] != &mad[MADHeaderLen+c.at] {
			t.Errorf("%s: %d bytes with room for %d, want the %d at offset %d", c.name, len(c.data), cap(c.data), c.len,
				c.at)
		}
	}
}

// The header of rdma_cm, as Linux writes it for IPv4, and for IPv6.
func TestCMHeader(t *testing.T) {
	client, server := ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 168, 14: 77, 15: 2},
		ib.GID{10: 0xFF, 11: 0xFF, 12: 192, 13: 168, 14: 77, 15: 1}
	for _, c := range []struct {
		bytes string
		want  CMHeader
	}{
		{"0040ed16" + "000000000000000000000000c0a84d02" + "000000000000000000000000c0a84d01",
			CMHeader{client, server, 60694}},
		{"00601234" + "fd000000000000000000000000000001" + "fd000000000000000000000000000002",
			CMHeader{ib.GID{0: 0xFD, 15: 1}, ib.GID{0: 0xFD, 15: 2}, 0x1234}},
	} {
		in := unhex(t, c.bytes)
		var got CMHeader
		if err := got.Decode(in); err != nil || got != c.want {
			t.Errorf("decoded %+v, %v; want %+v", got, err, c.want)
		}
		out := bytes.Repeat([]byte{0xA5}, CMHeaderLen+1)
		got.Put(out)
		if diff := cmp.Diff(append(in, 0xA5), out); diff != "" {
			t.Errorf("put (-want +got):\n%s", diff)
		}
	}
}

// What is not a header of rdma_cm is refused, and leaves the value alone.
func TestCMHeaderRefused(t *testing.T) {
	good := make([]byte, CMHeaderLen)
	(&CMHeader{Src: ib.GID{15: 1}, Dst: ib.GID{15: 2}}).Put(good)
	edit := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"35 bytes", good[:35], ErrShort},
		{"version 1", edit(0, 1), ErrVersion},
		{"IP version 0", edit(1, 0x06), ErrVersion},
		{"IP version 5", edit(1, 0x50), ErrVersion},
		{"mapped source", edit(14, 0xFF, 0xFF), ErrAddress},
		{"mapped destination", edit(30, 0xFF, 0xFF), ErrAddress},
	} {
		h := CMHeader{SrcPort: 7}
		err := h.Decode(c.b)
		if !errors.Is(err, c.want) || !errors.As(err, new(*HeaderError)) || h != (CMHeader{SrcPort: 7}) {
			t.Errorf("%s: %v, %+v; want %v", c.name, err, h, c.want)
		}
	}
}

// Service IDs name a port space and a port.
func TestServiceID(t *testing.T) {
	if id := ib.PortSpaceTCP.ServiceID(7471); id != 0x0000000001061D2F {
		t.Errorf("TCP port 7471: %#x, want 0x1061D2F", id)
	}
	for _, s := range []ib.PortSpace{ib.PortSpaceIPoIB, ib.PortSpaceTCP, ib.PortSpaceUDP, ib.PortSpaceIB} {
		for _, port := range []uint16{0, 1, 0xFFFF} {
			if space, p, ok := SplitServiceID(s.ServiceID(port)); space != s || p != port || !ok {
				t.Errorf("%v port %d: %v port %d, %v; want %v port %d", s, port, space, p, ok, s, port)
			}
		}
	}
	for _, id := range []uint64{0, 0x0105_1D2F, 0x0107_0000, 0x1_0106_1D2F, 0x1000_0000_0106_1D2F} {
		if s, port, ok := SplitServiceID(id); ok {
			t.Errorf("%#x is %v port %d; want neither", id, s, port)
		}
	}
}

// Everything that has a name says it; the rest, its number.
func TestCMText(t *testing.T) {
	for _, c := range []struct {
		got  interface{ String() string }
		want string
	}{
		{AttrREQ, "REQ"}, {AttrMRA, "MRA"}, {AttrREJ, "REJ"}, {AttrREP, "REP"}, {AttrRTU, "RTU"}, {AttrDREQ, "DREQ"},
		{AttrDREP, "DREP"},
		{AttrSIDRREQ, "SIDR_REQ"}, {AttrSIDRREP, "SIDR_REP"}, {AttrLAP, "LAP"}, {AttrAPR, "APR"},
		{CMAttr(0), "CMAttr(0)"}, {CMAttr(0x1B), "CMAttr(27)"},
		{MessageREQ, "REQ"}, {MessageREP, "REP"}, {MessageOther, "other"}, {CMMessage(3), "CMMessage(3)"},
	} {
		if got := c.got.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
