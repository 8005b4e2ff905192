package udp_test

import (
	"testing"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

// What is on the wire has the identification that Caps.ID announces, "don't
// fragment", and therefore the ICRC that Seal computed. The kernel's segmentation
// must happen before the capture point to be seen; where veth passes whole runs on
// (offload on) the capture shows the first header only.
func TestOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		name    string
		v6      bool
		o       udp.Options
		ethtool []string // features of the sender's interface to change
		whole   bool     // runs pass the capture point in one piece
		rule    link.IDRule
	}{
		{name: "IPv4", ethtool: []string{"tx-udp-segmentation", "off"}, rule: link.IDIndex},
		{name: "IPv4NoGSO", ethtool: []string{"gso", "off", "tx-udp-segmentation", "off"}, rule: link.IDIndex},
		{name: "IPv4NoChecksums", ethtool: []string{"tx", "off"}, rule: link.IDZero},
		{name: "IPv4OffloadOn", whole: true, rule: link.IDIndex},
		{name: "IPv4FrameByFrame", o: udp.Options{Offload: udp.OffloadOff}, rule: link.IDZero},
		{name: "IPv6", v6: true, ethtool: []string{"tx-udp-segmentation", "off"}, rule: link.IDIndex},
		{name: "IPv6FrameByFrame", v6: true, o: udp.Options{Offload: udp.OffloadOff}, rule: link.IDZero},
	} {
		t.Run(tt.name, func(t *testing.T) {
			na, nb := linktest.NewVeth(t, 1500)
			if tt.ethtool != nil {
				na.Command(t, "ethtool", append([]string{"-K", na.IfName}, tt.ethtool...)...)
			}
			aAddr, bAddr := na.Addr4, nb.Addr4
			if tt.v6 {
				aAddr, bAddr = na.Addr6, nb.Addr6
			}
			a := wrap.Seal(openIn(t, na, tt.o, aAddr))
			b := openIn(t, nb, udp.Options{}, bAddr)
			if got := a.Caps().ID; got != tt.rule {
				t.Fatalf("Caps.ID is %v, want %v", got, tt.rule)
			}
			var next uint32
			out := []link.Run{
				linktest.NewRun(a, b, &next, 1, 40, 0),
				linktest.NewRun(a, b, &next, 30, 1040, 68),
				linktest.NewRun(a, b, &next, 64, 40, 0),
				linktest.NewRun(a, b, &next, 2, 1040, 0),
			}
			want := len(linktest.Frames(out...))
			if tt.whole {
				want = len(out)
			}
			capture := nb.Capture(t, want)
			linktest.SendAll(t, a, out)
			linktest.Collect(t, b, len(linktest.Frames(out...)))
			checkWire(t, capture.Packets(t), out, tt.rule, tt.whole)
			if !tt.whole {
				linktest.Tshark(t, capture.File, want)
			}
		})
	}
}

// Datagrams to a group go to its MAC address, and have the identifications that
// were sealed, like all others.
func TestGroupOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		name string
		v6   bool
		rule link.IDRule
		o    udp.Options
	}{
		{"IPv4", false, link.IDIndex, udp.Options{}},
		{"IPv4FrameByFrame", false, link.IDZero, udp.Options{Offload: udp.OffloadOff}},
		{"IPv6", true, link.IDIndex, udp.Options{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			na, nb := linktest.NewVeth(t, 1500)
			na.Command(t, "ethtool", "-K", na.IfName, "tx-udp-segmentation", "off")
			addr := na.Addr4
			if tt.v6 {
				addr = na.Addr6
			}
			a := wrap.Seal(openIn(t, na, tt.o, addr))
			group := linktest.NewGroup(a)
			var next uint32
			run := linktest.NewRun(a, a, &next, 30, 1040, 68)
			run.Dst = group
			out := []link.Run{linktest.NewDatagram(a, group, 64), run, linktest.NewDatagram(a, group, 1040),
				linktest.NewDatagram(a, group, 64)}
			capture := nb.Capture(t, 34)
			linktest.SendAll(t, a, out)
			packets := capture.Packets(t)
			checkWire(t, packets, out, tt.rule, false)
			for i, p := range packets {
				if mac := linktest.GroupMAC(group); [6]byte(p) != mac {
					t.Errorf("packet %d goes to %x, want %x", i, p[:6], mac)
				}
			}
			linktest.Tshark(t, capture.File, 34)
		})
	}
}

// checkWire compares captured packets with the runs that were sent.
func checkWire(t *testing.T, packets [][]byte, out []link.Run, rule link.IDRule, whole bool) {
	t.Helper()
	n := 0
	for i := range out {
		r := &out[i]
		for j := range r.Frames() {
			f := wire.Frame{PartialUDPSum: true}
			if err := f.Decode(packets[n]); err != nil {
				t.Fatalf("packet %d: %v", n, err)
			}
			id := uint16(0)
			if rule == link.IDIndex && r.Src.Is4() {
				id = uint16(j)
			}
			if f.Outer.ID != id || f.Outer.NoDF || f.Outer.SrcPort != link.Port {
				t.Fatalf("run %d frame %d: ID %d, DF %v, source port %d; want ID %d, DF, 4791", i, j, f.Outer.ID,
					!f.Outer.NoDF, f.Outer.SrcPort, id)
			}
			if f.Outer.TrafficClass != r.TrafficClass || f.Outer.HopLimit != r.HopLimit {
				t.Errorf("run %d frame %d: traffic class %#x, hop limit %d; want %#x and %d", i, j,
					f.Outer.TrafficClass, f.Outer.HopLimit, r.TrafficClass, r.HopLimit)
			}
			if whole {
				f.Transport = f.Transport[:min(r.Size, len(f.Transport))]
			}
			if !f.Outer.Check(f.Transport) {
				t.Fatalf("run %d frame %d has a wrong ICRC", i, j)
			}
			n++
			if whole {
				break
			}
		}
	}
}
