package rawsock_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

func raw(a []netip.Addr) (link.Link, error) { return rawsock.Open(a, rawsock.Options{}) }

func rawSingly(a []netip.Addr) (link.Link, error) {
	return rawsock.Open(a, rawsock.Options{Offload: rawsock.OffloadOff})
}

func plain(a []netip.Addr) (link.Link, error) { return udp.Open(a, udp.Options{}) }

func frameByFrame(a []netip.Addr) (link.Link, error) {
	return udp.Open(a, udp.Options{Offload: udp.OffloadOff})
}

// The contract, with a packet socket on either side and with a plain UDP socket on
// the other. Runs pass veth in one piece where they are not sent frame by frame.
func TestContract(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b linktest.Opener
		mtu  int
		v6   bool
	}{
		{"RawToRaw", raw, raw, 1500, false},
		{"RawToRawIPv6", raw, raw, 1500, true},
		{"RawToRawJumbo", raw, raw, 9000, false},
		{"RawSinglyToRaw", rawSingly, raw, 1500, false},
		{"RawSinglyToRawIPv6", rawSingly, raw, 1500, true},
		{"RawSinglyToUDP", rawSingly, plain, 1500, false},
		{"UDPToRaw", plain, raw, 1500, false},
		{"UDPToRawIPv6", plain, raw, 1500, true},
		{"UDPSinglyToRaw", frameByFrame, raw, 1500, false},
		{"RawToUDP", raw, plain, 1500, false},
		{"RawToUDPIPv6", raw, plain, 1500, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			linktest.Veth{MTU: tt.mtu, IPv6: tt.v6, A: tt.a, B: tt.b}.Run(t)
		})
	}
}

// A receiver sees identifications and sizes of runs of every kind, so that every
// ICRC can be checked exactly.
func TestIdentification(t *testing.T) {
	for _, tt := range []struct {
		name string
		open linktest.Opener
	}{{"raw", raw}, {"raw frame by frame", rawSingly}, {"udp", plain}, {"udp frame by frame", frameByFrame}} {
		na, nb := linktest.NewVeth(t, 1500)
		a, b := linktest.OpenIn(t, na, tt.open, na.Addr4), linktest.OpenIn(t, nb, raw, nb.Addr4)
		linktest.Meet(t, a, b)
		sealed := wrap.Seal(a)
		var psn uint32
		out := []link.Run{linktest.NewRun(a, b, &psn, 30, 1040, 68), linktest.NewRun(a, b, &psn, 1, 40, 0)}
		linktest.SendAll(t, sealed, out)
		for _, r := range linktest.Collect(t, b, 32) {
			o := wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port}
			for i := range r.Frames() {
				if o.ID = r.ID + uint16(i); !r.KnownID || !o.Check(r.Frame(i)) {
					t.Errorf("%s: frame %d of %d: wrong ICRC, or the ID %d is not it", tt.name, i, r.Frames(), o.ID)
				}
			}
		}
	}
}

// Through a router the frame goes to the router's MAC address.
func TestGateway(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	far := netip.MustParseAddr("10.77.0.1")
	nb.Command(t, "ip", "addr", "add", far.String()+"/32", "dev", nb.IfName)
	na.Command(t, "ip", "route", "add", "10.77.0.0/16", "via", nb.Addr4.String())
	a, b := linktest.OpenIn(t, na, raw, na.Addr4), linktest.OpenIn(t, nb, raw, far)
	linktest.Meet(t, a, b)
}

// The kernel answers RoCEv2 packets with nothing.
func TestGuard(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := linktest.OpenIn(t, na, raw, na.Addr4), linktest.OpenIn(t, nb, raw, nb.Addr4)
	linktest.Meet(t, a, b)
	if icmp := na.Command(t, "cat", "/proc/thread-self/net/snmp"); strings.Contains(icmpLine(icmp), "DestUnreachs") {
		t.Error("test does not read the counters")
	} else if n := strings.Fields(icmpLine(icmp))[3]; n != "0" {
		t.Errorf("%s ICMP unreachable messages came back, want none", n)
	}
}

// icmpLine returns the counters "Icmp: InMsgs InErrors InCsumErrors InDestUnreachs ..."
// of /proc/net/snmp.
func icmpLine(snmp string) string {
	var last string
	for line := range strings.Lines(snmp) {
		if strings.HasPrefix(line, "Icmp: ") {
			last = line
		}
	}
	return strings.TrimPrefix(last, "Icmp: ")
}

// Frames for somebody else on the same wire, or in a VLAN, are not received.
func TestOverheard(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	nb.Command(t, "ip", "link", "set", nb.IfName, "promisc", "on")
	b := linktest.OpenIn(t, nb, raw, nb.Addr4)
	local := b.Caps().Local[0]
	elsewhere := local
	elsewhere[15] = 99
	tooLong := linktest.NewFrame(nb.MAC, local, nil)
	tooLong[14+2] = 0xFF // IPv4 length beyond the frame: passes the filter
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
}

// A host that does not answer is a counted loss.
func TestNobodyThere(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	a := linktest.OpenIn(t, na, raw, na.Addr4)
	var psn uint32
	r := linktest.NewRun(a, a, &psn, 3, 64, 0)
	r.Dst[15] = 77
	linktest.SendAll(t, a, []link.Run{r})
	if s := a.Stats(); s.TxErrors != 0 {
		t.Errorf("stats %+v: the frames did not wait, want no errors", s)
	}
	if _, err := a.Recv(3_000_000_000, make([]link.Run, 1)); err != nil { // three seconds later
		t.Fatal(err)
	}
	if s := a.Stats(); s.TxErrors != 3 || !strings.Contains(s.LastError, "MAC address") {
		t.Errorf("stats %+v, want 3 frames lost for want of a MAC address", s)
	}
}

// TestFirstFrames: frames that are sent before the neighbour is known arrive when it is, in order; those that do not
// fit are counted.
func TestFirstFrames(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := linktest.OpenIn(t, na, raw, na.Addr4), linktest.OpenIn(t, nb, raw, nb.Addr4)
	var psn uint32
	var out []link.Run
	for range 300 {
		out = append(out, linktest.NewRun(a, b, &psn, 1, 1024, 0))
	}
	linktest.SendAll(t, a, out)
	in := make([]link.Run, 32)
	got := 0
	for end := time.Now().Add(require.Patience); got < 208 && time.Now().Before(end); {
		_ = a.Wait(10*time.Millisecond, false) // woken by the neighbour table
		if _, err := a.Recv(0, in); err != nil {
			t.Fatal(err)
		}
		for n := 1; n > 0; {
			n, _ = b.Recv(0, in)
			for i := range in[:n] {
				if want := out[got].Buf[8:12]; !bytes.Equal(in[i].Buf[8:12], want) {
					t.Fatalf("frame %d has PSN %x, want %x", got, in[i].Buf[8:12], want)
				}
				got++
			}
		}
	}
	if s := a.Stats(); got != 208 || s.TxErrors != 300-208 { // 208 KiB wait
		t.Errorf("%d frames arrived, %d were lost, want 208 and 92: %s", got, s.TxErrors, s.LastError)
	}
}

// A device is asked for its statistics while its loop waits.
func TestStatsWhileWaiting(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	linktest.StatsWhileWaiting(t, linktest.OpenIn(t, na, raw, na.Addr4))
}

// The kernel counts messages; here each is a frame.
func TestOverflow(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	small := func(a []netip.Addr) (link.Link, error) { return rawsock.Open(a, rawsock.Options{RecvBuffer: 8 << 10}) }
	a, b := linktest.OpenIn(t, na, rawSingly, na.Addr4), linktest.OpenIn(t, nb, small, nb.Addr4)
	linktest.Meet(t, a, b)
	before := b.Stats()
	var psn uint32
	for range 10 {
		linktest.SendAll(t, a, []link.Run{linktest.NewRun(a, b, &psn, 40, 1040, 0)})
	}
	in := make([]link.Run, 32)
	var got, lost uint64
	for end := time.Now().Add(require.Patience); got+lost != 400 && time.Now().Before(end); {
		if _, err := b.Recv(0, in); err != nil {
			t.Fatal(err)
		}
		s := b.Stats()
		got, lost = s.RxFrames-before.RxFrames, s.RxOverflow-before.RxOverflow
	}
	if lost == 0 || got+lost != 400 {
		t.Errorf("received %d, lost %d, want 400 together", got, lost)
	}
}

func TestOpenErrors(t *testing.T) { linktest.WrongAddresses(t, raw, plain) }

func TestPermission(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	err := na.Do(func() error {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_NET_RAW
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			return err
		}
		_, err := raw([]netip.Addr{na.Addr4})
		return err
	})
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without CAP_NET_RAW: %v, want ErrPermission", err)
	}
}

// A frame that waits for a MAC address is lost if its source address is removed meanwhile.
func TestHeldFromAddressThatGoes(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a := linktest.OpenIn(t, na, raw, na.Addr4)
	later := na.Spare(t, false)
	if err := a.AddLocal(later); err != nil {
		t.Fatal(err)
	}
	var psn uint32
	r := linktest.NewRun(a, a, &psn, 2, 64, 0)
	r.Src, r.Dst = later, ib.GIDFromAddr(netip.MustParseAddr("10.99.0.200"))
	linktest.SendAll(t, a, []link.Run{r})
	if s := a.Stats(); s.TxErrors != 0 || s.TxFrames != 0 {
		t.Fatalf("the frames do not wait: %+v, want none sent, no errors", s)
	}
	if err := a.RemoveLocal(later); err != nil {
		t.Fatal(err)
	}
	na.Command(t, "ip", "neigh", "replace", "10.99.0.200", "lladdr", net.HardwareAddr(nb.MAC[:]).String(), "dev",
		na.IfName)
	for end := time.Now().Add(require.Patience); a.Stats().TxErrors+a.Stats().TxFrames == 0; {
		_ = a.Wait(10*time.Millisecond, false)
		if _, err := a.Recv(0, make([]link.Run, 1)); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("the frames still wait")
		}
	}
	if s := a.Stats(); s.TxErrors != 2 || s.TxFrames != 0 || !strings.Contains(s.LastError, "source GID") {
		t.Errorf("%+v, want both frames lost for their source", s)
	}
}
