package rawsock_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

func TestMembership(t *testing.T) {
	linktest.Membership(t, func(ns *linktest.Namespace, addr netip.Addr) link.Link {
		return linktest.OpenIn(t, ns, raw, addr)
	})
}

// Loopback receives what it sends; a member there must not see it twice.
func TestContractLoopback(t *testing.T) {
	ns, _ := linktest.NewVeth(t, 1500)
	for name, open := range map[string]linktest.Opener{"Offload": raw, "FrameByFrame": rawSingly} {
		t.Run(name, func(t *testing.T) {
			linktest.Run(t, func(t testing.TB) (a, b link.Link) {
				a = linktest.OpenIn(t, ns, open, linktest.Loopback())
				b = linktest.OpenIn(t, ns, open, linktest.Loopback())
				return a, b
			})
		})
	}
}

// Datagrams to a group go to its MAC address without asking for it, with the
// source port and the identification that were chosen.
func TestGroupOnTheWire(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a := linktest.OpenIn(t, na, raw, na.Addr4, na.Addr6)
	l := wrap.Seal(a)
	out := []link.Run{linktest.NewDatagram(a, linktest.NewGroup(a), 64),
		linktest.NewDatagram(a, ib.GID{0: 0xFF, 1: 0x05, 15: 9}, 1040)}
	out[1].Src = a.Caps().Local[1]
	capture := nb.Capture(t, len(out))
	linktest.SendAll(t, l, out)
	for i, p := range capture.Packets(t) {
		var f wire.Frame
		if err := f.Decode(p); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if mac := linktest.GroupMAC(out[i].Dst); f.EtherDst != mac || f.EtherSrc != na.MAC {
			t.Errorf("packet %d from %x to %x, want from %x to %x", i, f.EtherSrc, f.EtherDst, na.MAC, mac)
		}
		if f.Outer.Dst != out[i].Dst || f.Outer.SrcPort != out[i].SrcPort || f.Outer.HopLimit != out[i].HopLimit ||
			!f.Outer.Check(f.Transport) {
			t.Errorf("packet %d: %+v, ICRC right: %v;\nwant port %d, hop limit %d, to %v", i, f.Outer,
				f.Outer.Check(f.Transport), out[i].SrcPort, out[i].HopLimit, out[i].Dst.Addr())
		}
	}
	linktest.Tshark(t, capture.File, len(out))
}

// The group decides, not the destination MAC address of a frame.
func TestGroupFrames(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	nb.Command(t, "ip", "link", "set", nb.IfName, "promisc", "on")
	b := linktest.OpenIn(t, nb, raw, nb.Addr4)
	group := linktest.NewGroup(b)
	if err := b.Join(group); err != nil {
		t.Fatal(err)
	}
	mac, sameMAC := linktest.GroupMAC(group), group
	sameMAC[12]--
	vlan := uint16(7)
	for _, frame := range [][]byte{
		linktest.NewFrame(mac, sameMAC, nil),
		linktest.NewFrame(mac, group, &vlan),
		linktest.NewFrame([6]byte{2, 9, 9, 9, 9, 9}, group, nil), // for another host
		linktest.NewFrame(mac, b.Caps().Local[0], nil),
		linktest.NewFrame(nb.MAC, group, nil), // ours: a switch made it unicast
		linktest.NewFrame(mac, group, nil),    // ours
	} {
		na.Inject(t, frame)
	}
	for _, r := range linktest.Collect(t, b, 2) {
		if r.Dst != group {
			t.Errorf("received a frame to %v, want %v", r.Dst.Addr(), group.Addr())
		}
	}
	if s := b.Stats(); s.RxFrames != 2 || s.RxDropped != 0 {
		t.Errorf("stats %+v, want 2 frames received", s)
	}
}

// The members of one host receive what any of its UDP sockets sends, and each
// packet socket what the others send.
func TestGroupOnOneHost(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	na.Command(t, "ip", "addr", "add", "10.99.0.3/24", "dev", na.IfName)
	na.Command(t, "ip", "addr", "add", "10.99.0.4/24", "dev", na.IfName)
	first := linktest.OpenIn(t, na, raw, na.Addr4)
	second := linktest.OpenIn(t, na, raw, netip.MustParseAddr("10.99.0.3"))
	sockets := linktest.OpenIn(t, na, plain, netip.MustParseAddr("10.99.0.4"))
	group := linktest.NewGroup(first)
	for _, l := range []link.Link{first, second, sockets} {
		if err := l.Join(group); err != nil {
			t.Fatal(err)
		}
	}
	var psn uint32
	for _, tt := range []struct {
		name      string
		sender    link.Link
		receivers []link.Link
	}{
		{"from sockets", sockets, []link.Link{first, second, sockets}},
		{"from a packet socket", first, []link.Link{first, second}},
	} {
		r := linktest.NewRun(tt.sender, tt.sender, &psn, 10, 1040, 68)
		r.Dst = group
		linktest.SendAll(t, tt.sender, []link.Run{r})
		for i, l := range tt.receivers {
			for _, got := range linktest.Collect(t, l, r.Frames()) {
				if got.Src != r.Src || got.Dst != group {
					t.Errorf("%s, receiver %d: from %v to %v; want %v to %v", tt.name, i, got.Src.Addr(),
						got.Dst.Addr(), r.Src.Addr(), group.Addr())
				}
			}
		}
	}
	in := make([]link.Run, 1)
	for i, l := range []link.Link{first, second, sockets} {
		if n, _ := l.Recv(0, in); n > 0 {
			t.Errorf("receiver %d: %d frames too many, want none", i, in[0].Frames())
		}
	}
}

// A member's kernel answers nothing, though no UDP socket has the group's port; nor
// does that of a host which hears frames to groups that it did not join.
func TestGroupGuard(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	for _, addrs := range [][2]netip.Addr{{na.Addr4, nb.Addr4}, {na.Addr6, nb.Addr6}} {
		a, b := linktest.OpenIn(t, na, raw, addrs[0]), linktest.OpenIn(t, nb, raw, addrs[1])
		group := linktest.NewGroup(a)
		if err := b.Join(group); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			linktest.SendAll(t, a, []link.Run{linktest.NewDatagram(a, linktest.NewGroup(a), 64),
				linktest.NewDatagram(a, group, 64)})
		}
		linktest.Collect(t, b, 20)
	}
	if n := counter(t, nb, "/proc/thread-self/net/snmp", "Icmp:", "OutDestUnreachs"); n != "0" {
		t.Errorf("%s ICMP unreachable messages were sent, want none", n)
	}
	if n := counter(t, nb, "/proc/thread-self/net/snmp6", "Icmp6OutDestUnreachs", ""); n != "0" {
		t.Errorf("%s ICMPv6 unreachable messages were sent, want none", n)
	}
}

// counter returns a figure of a table of the kernel's, whose lines begin with row:
// the only one, or else the one under the column.
func counter(t *testing.T, ns *linktest.Namespace, file, row, column string) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(ns.Command(t, "cat", file)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2 || f[0] != row:
		case column == "":
			return f[1]
		case names == nil:
			names = f
		default:
			for i, name := range names {
				if name == column {
					return f[i]
				}
			}
		}
	}
	t.Fatalf("%s has no %s %s", file, row, column)
	return ""
}

// Neither the memory for a socket's filter nor the kernel's bound on the memberships
// of one socket limits the number of groups.
func TestManyGroups(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	for _, addrs := range [][2]netip.Addr{{na.Addr4, nb.Addr4}, {na.Addr6, nb.Addr6}} {
		a, b := linktest.OpenIn(t, na, raw, addrs[0]), linktest.OpenIn(t, nb, raw, addrs[1])
		var out []link.Run
		for range 150 {
			out = append(out, linktest.NewDatagram(a, linktest.NewGroup(a), 64))
			if err := b.Join(out[len(out)-1].Dst); err != nil {
				t.Fatal(err)
			}
		}
		linktest.SendAll(t, a, out)
		for i, r := range linktest.Collect(t, b, len(out)) {
			if r.Dst != out[i].Dst {
				t.Errorf("frame %d is to %v, want %v", i, r.Dst.Addr(), out[i].Dst.Addr())
			}
		}
	}
}
