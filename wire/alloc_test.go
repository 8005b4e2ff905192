package wire

import (
	"testing"

	"github.com/goroce/goroce/ib"
)

// Nothing here allocates, whether the packet is good or bad.
func TestNoAllocations(t *testing.T) {
	var f Frame
	var p Packet
	buf := make([]byte, 0, 256)
	check := func(name string, fn func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
	for _, b := range sampleFrames(t) {
		good, _ := mustDecode(t, b)
		transport := good.Transport
		check("Frame.Decode", func() { _ = f.Decode(b) })
		check("Frame.DecodeIP", func() { _ = f.DecodeIP(b[EtherLen:]) })
		check("Frame.AppendHeaders", func() { buf = f.AppendHeaders(buf[:0], len(transport)) })
		check("Packet.Decode", func() { _ = p.Decode(transport[:len(transport)-ICRCLen]) })
		check("Packet.AppendHeaders", func() { buf = p.AppendHeaders(buf[:0]) })
		check("Packet.PutHeaders", func() { p.PutHeaders(buf[:MaxHeaderLen]) })
		check("Outer.Seal, Check", func() {
			o := good.Outer // headers on the stack stay there
			o.Seal(transport)
			if !o.Check(transport) {
				t.Error("bad ICRC")
			}
		})
		check("Outer.SolveID", func() {
			o := good.Outer
			o.ID++
			o.SolveID(transport)
		})
		check("Reseal", func() { Reseal(transport, 1, 2) })
	}
	for _, tc := range badPackets() {
		check(tc.name, func() { _ = p.Decode(tc.b) })
	}
	for _, tc := range badFrames(t) {
		check(tc.name, func() { _ = f.Decode(tc.b) })
	}
}

// Neither does the connection manager's part, whatever the bytes.
func TestNoAllocationsCM(t *testing.T) {
	var h MADHeader
	var c CMHeader
	check := func(name string, fn func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
	for _, mad := range madsOf(t, rpingPath) {
		check("MADHeader", func() { h.Decode(mad); h.Put(mad) })
		for a, m := range cmMessages() {
			check(a.String(), func() { m.Decode(mad); m.Put(mad) })
		}
		for _, private := range [][]byte{mad[MADHeaderLen+reqPrivate:], mad[:CMHeaderLen], mad[:1]} {
			check("CMHeader.Decode", func() { _ = c.Decode(private) })
		}
		check("CMHeader.Put", func() { c.Put(mad[:]) })
	}
	check("SplitServiceID", func() {
		_, _, _ = SplitServiceID(uint64(ib.PortSpaceTCP) << 16)
		_, _, _ = SplitServiceID(7)
	})
}
