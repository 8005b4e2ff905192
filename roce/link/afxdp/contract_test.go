package afxdp

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// The contract, with the link on both ends and with others at the other end: UDP
// sockets send runs in one piece where veth lets them, as it does to a generic program.
func TestContract(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b linktest.Opener
		mtu  int
		v6   bool
		all  bool // also on older kernels
		full bool // only with GOROCE_FULL=1: other rows show most of it
	}{
		{"Native", native, native, 1500, false, true, false},
		{"NativeIPv6", native, native, 1500, true, true, true},
		{"NativeJumbo", native, native, 9000, false, true, true},
		{"Generic", generic, generic, 1500, false, true, true},
		{"GenericJumboIPv6", generic, generic, 9000, true, true, false},
		{"BusyPoll", with(Options{BusyPoll: 20 * time.Microsecond}), native, 1500, false, true, true},
		{"OneChunk", with(Options{oneChunk: true}), with(Options{oneChunk: true}), 9000, false, true, false},
		{"UDPToNative", plain, native, 1500, false, true, false},
		{"UDPToGeneric", plain, generic, 1500, false, false, false},
		{"UDPToGenericIPv6", plain, generic, 1500, true, false, true},
		{"NativeToUDP", native, plain, 1500, false, true, true},
		{"RawToNative", raw, native, 9000, true, false, true},
		{"NativeToRaw", native, raw, 9000, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.full {
				require.FullRun(t, "other rows show most of it, too")
			}
			if !tt.all && !knowsSeveral() {
				require.Missing(t, "frames of several chunks need Linux 6.6, several frames in one piece 6.2")
			}
			linktest.Veth{MTU: tt.mtu, IPv6: tt.v6, A: tt.a, B: tt.b}.Run(t)
		})
	}
}

// Frames to an address that was added later arrive by the rings, too.
func TestAddressByRings(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := open(t, na, Options{}, na.Addr4), linktest.OpenIn(t, nb, native, nb.Addr4)
	linktest.Meet(t, b, a)
	later := na.Spare(t, false)
	if err := a.AddLocal(later); err != nil {
		t.Fatal(err)
	}
	linktest.Meet(t, a, b)
	rings, kernel := a.byRings()
	var psn uint32
	in := make([]link.Run, 8)
	for end := time.Now().Add(20 * time.Second); ; {
		r := linktest.NewRun(b, a, &psn, 1, 64, 0)
		r.Dst = later
		linktest.SendAll(t, b, []link.Run{r})
		_, _ = b.Recv(0, in[:1]) // sends what waits for the MAC address
		_ = a.Wait(10*time.Millisecond, false)
		if n, err := a.Recv(0, in); err != nil {
			t.Fatal(err)
		} else if n > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing arrives")
		}
	}
	if r, k := a.byRings(); r == rings || k != kernel {
		t.Errorf("%d frames by the rings, %d through the kernel; want all by the rings", r-rings, k-kernel)
	}
}

func TestMembership(t *testing.T) {
	linktest.Membership(t, func(ns *linktest.Namespace,
		addr netip.Addr) link.Link {
		return linktest.OpenIn(t, ns, native, addr)
	})
}

// A device is asked for its statistics while its loop waits.
func TestStatsWhileWaiting(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	linktest.StatsWhileWaiting(t, open(t, na, Options{}, na.Addr4))
}

// Frames come by the rings, one by one, unless they come in one piece: those the
// kernel has to take apart.
func TestWays(t *testing.T) {
	const rings, kernel = true, false // from Linux 6.6 on
	for _, tt := range []struct {
		name    string
		sender  linktest.Opener
		options Options
		mtu     int
		way     bool
	}{
		{"native from native", native, Options{}, 1500, rings},
		{"native from native, jumbo", native, Options{}, 9000, rings},
		{"native from generic", generic, Options{}, 1500, rings},
		{"native from raw", raw, Options{}, 9000, rings},
		{"native from UDP", plain, Options{}, 1500, rings},
		{"native from UDP, jumbo", plain, Options{}, 9000, rings},
		{"generic from native", native, Options{Generic: true}, 9000, rings},
		{"generic from raw", raw, Options{Generic: true}, 1500, kernel},
		{"generic from UDP", plain, Options{Generic: true}, 1500, kernel},
	} {
		if (tt.way == kernel || tt.mtu > 1500) && !knowsSeveral() {
			continue
		}
		na, nb := linktest.NewVeth(t, tt.mtu)
		for _, addr := range [][2]netip.Addr{{na.Addr4, nb.Addr4}, {na.Addr6, nb.Addr6}} {
			a, b := linktest.OpenIn(t, na, tt.sender, addr[0]), open(t, nb, tt.options, addr[1])
			linktest.Meet(t, a, b)
			byRings, byKernel := b.byRings()
			var psn uint32
			longest := min(4112, a.Caps().MTU-48, b.Caps().MTU-48) &^ 3
			out := []link.Run{linktest.NewRun(a, b, &psn, 30, 1040, 68), linktest.NewRun(a, b, &psn, 10, 20, 0),
				linktest.NewRun(a, b, &psn, 3, longest, 0)}
			want := len(linktest.Frames(out...))
			linktest.SendAll(t, a, out)
			linktest.Collect(t, b, want)
			r, k := b.byRings()
			if r, k = r-byRings, k-byKernel; r+k != want || tt.way == rings && k > 0 || tt.way == kernel && r > 0 {
				t.Errorf("%s, %v: %d frames came by the rings and %d through the kernel; want all %d by one way",
					tt.name, addr[1], r, k, want)
			}
			_, _ = a.Close(), b.Close()
		}
	}
}

// Frames that exceed a chunk are received although the link cannot send such.
func TestLargerThanAChunk(t *testing.T) {
	na, nb := linktest.NewVeth(t, 9000)
	a, b := linktest.OpenIn(t, na, raw, na.Addr4), open(t, nb, Options{oneChunk: true, Generic: true}, nb.Addr4)
	linktest.Meet(t, a, b)
	want := "generic XDP, copy mode, 1 queue, MTU 3826 of 9000 because a frame has to fit the chunks"
	if caps := b.Caps(); caps.MTU != 3826 || caps.Note != want {
		t.Errorf("MTU %d, note %q; want 3826, %q", caps.MTU, caps.Note, want)
	}
	var psn uint32
	out := []link.Run{linktest.NewRun(a, b, &psn, 2, 4112, 0), linktest.NewRun(a, b, &psn, 1, 3000, 0)}
	linktest.SendAll(t, a, out)
	linktest.Collect(t, b, 3)
	linktest.SendAll(t, b, []link.Run{linktest.NewRun(b, a, &psn, 2, 4112, 0)})
	if s := b.Stats(); s.TxErrors != 2 {
		t.Errorf("stats %+v, want 2 frames refused", s)
	}
}

// What is on the wire decodes, has the identification that was sealed, and the
// source port that was asked for; a frame may lie in several chunks.
func TestOnTheWire(t *testing.T) {
	na, nb := linktest.NewVeth(t, 9000)
	a, b := linktest.OpenIn(t, na, native, na.Addr4, na.Addr6), linktest.OpenIn(t, nb, raw, nb.Addr4, nb.Addr6)
	linktest.Meet(t, a, b)
	l := wrap.Seal(a)
	var psn uint32
	v4, v6 := linktest.NewRun(a, b, &psn, 3, 4112, 68), linktest.NewRun(a, b, &psn, 3, 8500, 68)
	first := uint16(0)
	v6.Src, v6.Dst, v6.FlowLabel = a.Caps().Local[1], b.Caps().Local[1], 0x12345
	v6.HopLimit = 0 // cannot leave
	in := make([]link.Run, 8)
	for n := 0; n == 0; n, _ = b.Recv(0, in) { // until the address is known
		linktest.SendAll(t, l, []link.Run{v6})
		_, _ = l.Recv(0, in)
		_ = b.Wait(10*time.Millisecond, false)
	}
	capture := nb.Capture(t, 8)
	linktest.SendAll(t, l, []link.Run{v4, v6})
	for i, p := range capture.Packets(t) {
		var f wire.Frame
		if err := f.Decode(p); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		r, hops := &v4, uint8(33)
		if i >= 4 {
			r, hops = &v6, 64
		}
		want := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port,
			TrafficClass: r.TrafficClass, HopLimit: hops, FlowLabel: r.FlowLabel}
		if i == 0 {
			first = f.Outer.ID
		}
		if r == &v4 {
			want.ID = first + uint16(i)
		}
		if f.Outer != want || f.EtherSrc != na.MAC || f.EtherDst != nb.MAC {
			t.Errorf("packet %d from %x to %x: %+v, want from %x to %x: %+v", i, f.EtherSrc, f.EtherDst, f.Outer,
				na.MAC, nb.MAC, want)
		}
		if !f.Outer.Check(f.Transport) {
			t.Errorf("packet %d has a wrong ICRC", i)
		}
	}
	linktest.Tshark(t, capture.File, 8)
}

// Frames for somebody else on the same wire, or in a VLAN, are not received.
func TestOverheard(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	nb.Command(t, "ip", "link", "set", nb.IfName, "promisc", "on")
	for _, o := range []Options{{}, {Generic: true}} {
		b := open(t, nb, o, nb.Addr4)
		local := b.Caps().Local[0]
		elsewhere := local
		elsewhere[15] = 99
		tooLong := linktest.NewFrame(nb.MAC, local, nil)
		tooLong[14+2], tooLong[14+3] = 1, 0 // an IPv4 length of 256 is more than there is
		vlan := func(tag uint16) *uint16 { return &tag }
		for _, frame := range [][]byte{
			linktest.NewFrame([6]byte{2, 9, 9, 9, 9, 9}, local, nil),
			linktest.NewFrame(nb.MAC, elsewhere, nil),
			linktest.NewFrame(nb.MAC, local, vlan(7)),
			tooLong,
			linktest.NewFrame(nb.MAC, local, vlan(3<<13)), // priority 3, no VLAN: ours
			linktest.NewFrame(nb.MAC, local, nil),
		} {
			na.Inject(t, frame)
		}
		for _, r := range linktest.Collect(t, b, 2) {
			if len(r.Buf) != 64 || r.Dst != local {
				t.Errorf("received %+v, want 64 bytes to %v", r, local.Addr())
			}
		}
		if s := b.Stats(); s.RxFrames != 2 || s.RxDropped != 1 {
			t.Errorf("stats %+v, want 2 frames received and 1 dropped", s)
		}
		_ = b.Close()
	}
}

// Frames that are not taken out of the rings are dropped and counted; later frames arrive as before.
func TestOverflow(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := open(t, na, Options{}, na.Addr4), open(t, nb, Options{}, nb.Addr4)
	linktest.Meet(t, a, b)
	first := b.Stats()
	s := first
	const sent, rounds = 64 * 50, 2
	for round := range rounds {
		var psn uint32
		for range sent / 64 {
			linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &psn, 64, 64, 0)})
		}
		end := time.Now().Add(10 * time.Second)
		before := s
		for s.RxOverflow == before.RxOverflow && time.Now().Before(end) { // the kernel may deliver later
			s = b.Stats()
		}
		in := make([]link.Run, 16)
		least := uint64(b.mem.rx - len(in)) // the link may still have what the round before has received last
		for s.RxFrames-before.RxFrames < least && time.Now().Before(end) {
			if _, err := b.Recv(0, in); err != nil {
				t.Fatal(err)
			}
			s = b.Stats()
		}
		got, lost := s.RxFrames-before.RxFrames, s.RxOverflow-before.RxOverflow
		if got < least || lost == 0 {
			t.Errorf("round %d: received %d, lost %d; want at least %d received, and some lost", round, got, lost,
				least)
		}
	}
	// veth may lose some on the way.
	if n := s.RxFrames - first.RxFrames + s.RxOverflow - first.RxOverflow; n > rounds*sent {
		t.Errorf("received and lost %d together, want %d at most", n, rounds*sent)
	}
}

// A run may be shorter than its size says.
func TestShortRun(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := open(t, na, Options{}, na.Addr4), open(t, nb, Options{}, nb.Addr4)
	linktest.Meet(t, a, b)
	var psn uint32
	r := linktest.NewRun(a, b, &psn, 1, 64, 0)
	r.Size = 1 << 40
	linktest.SendAll(t, a, []link.Run{r})
	if got := linktest.Collect(t, b, 1); len(got[0].Buf) != 64 {
		t.Errorf("%d bytes arrived, want 64", len(got[0].Buf))
	}
}

// The host that a run is for may not be there.
func TestNobodyThere(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	a := open(t, na, Options{}, na.Addr4)
	var psn uint32
	r := linktest.NewRun(a, a, &psn, 3, 64, 0)
	r.Dst[15] = 77
	linktest.SendAll(t, a, []link.Run{r})
	if _, err := a.Recv(3_000_000_000, make([]link.Run, 1)); err != nil { // three seconds later
		t.Fatal(err)
	}
	if s := a.Stats(); s.TxErrors != 3 {
		t.Errorf("stats %+v, want 3 frames lost for want of a MAC address", s)
	}
}

// While the interface is down, sent frames are lost and counted; later everything works. Without ARP no frame waits for
// an address.
func TestInterfaceDown(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	na.Command(t, "ip", "link", "set", na.IfName, "arp", "off")
	a := open(t, na, Options{}, na.Addr4)
	var psn uint32
	out := []link.Run{linktest.NewRun(a, a, &psn, 3, 64, 0)}
	out[0].Dst[15] = 2
	send := func() link.Stats {
		for range a.mem.tx { // together more than there are chunks
			linktest.SendAll(t, a, out)
		}
		return a.Stats()
	}
	na.Command(t, "ip", "link", "set", na.IfName, "down")
	down := send()
	if down.TxFrames != 3 || down.TxErrors != uint64(3*a.mem.tx-3) || down.LastError != unix.ENETDOWN.Error() {
		t.Errorf("stats %+v, want 3 frames put in the ring, and all others lost because the interface is down", down)
	}
	na.Command(t, "ip", "link", "set", na.IfName, "up")
	if up := send(); up.TxErrors != down.TxErrors || up.TxFrames != uint64(3*a.mem.tx+3) {
		t.Errorf("stats %+v, want no more frames lost", up)
	}
	if a.queues[0].waiting() {
		t.Error("frames are still in the ring")
	}
}
