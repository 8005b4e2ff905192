package rawsock_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/rawsock"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// seal gives r's frames the identifications from id on, and their ICRCs.
func seal(r *link.Run, id uint16) {
	r.ID = id
	o := outer(r)
	for i := range r.Frames() {
		o.ID = id + uint16(i)
		o.Seal(r.Frame(i))
	}
}

// outer returns the IP and UDP headers of r's first frame.
func outer(r *link.Run) wire.Outer {
	return wire.Outer{Src: r.Src, Dst: r.Dst, SrcPort: r.SrcPort, DstPort: link.Port,
		TrafficClass: r.TrafficClass, HopLimit: r.HopLimit, FlowLabel: r.FlowLabel, ID: r.ID}
}

// What is on the wire decodes, has the identifications and ICRCs that were sealed, the
// source port that was asked for, and a right UDP checksum or none. The kernel's
// segmentation must happen before the capture point to be seen; where veth passes
// whole runs on the capture shows the first header only.
func TestOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		name    string
		open    linktest.Opener
		ethtool []string // features of the sender's interface to change
		whole   bool     // runs pass the capture point in one piece
		sums    bool     // checksums are complete there
	}{
		{name: "Segmented", open: raw, ethtool: []string{"tx-udp-segmentation", "off"}},
		{name: "NoGSO", open: raw, ethtool: []string{"gso", "off", "tx-udp-segmentation", "off"}},
		{name: "NoChecksums", open: raw, ethtool: []string{"tx", "off"}, sums: true},
		{name: "Whole", open: raw, whole: true},
		{name: "FrameByFrame", open: rawSingly, sums: true},
	} {
		for _, v6 := range []bool{false, true} {
			name := tt.name
			if v6 {
				name += "IPv6"
			}
			t.Run(name, func(t *testing.T) {
				na, nb := linktest.NewVeth(t, 1500)
				if tt.ethtool != nil {
					na.Command(t, "ethtool", append([]string{"-K", na.IfName}, tt.ethtool...)...)
				}
				aAddr, bAddr := na.Addr4, nb.Addr4
				if v6 {
					aAddr, bAddr = na.Addr6, nb.Addr6
				}
				a, b := linktest.OpenIn(t, na, tt.open, aAddr), linktest.OpenIn(t, nb, raw, bAddr)
				linktest.Meet(t, a, b)
				var psn uint32
				out := []link.Run{
					linktest.NewRun(a, b, &psn, 1, 40, 0),
					linktest.NewRun(a, b, &psn, 30, 1040, 68),
					linktest.NewRun(a, b, &psn, 64, 40, 0),
					linktest.NewRun(a, b, &psn, 2, 1040, 0),
					linktest.NewRun(a, b, &psn, 1, 1040, 68),
				}
				for i := range out {
					if v6 {
						out[i].FlowLabel = 0x12345
					}
					seal(&out[i], uint16(65_530-7*i)) // some pass zero
				}
				want := len(linktest.Frames(out...))
				if tt.whole {
					want = len(out)
				}
				capture := nb.Capture(t, want)
				linktest.SendAll(t, a, out)
				checkWire(t, capture.Packets(t), out, na.MAC, nb.MAC, tt.whole, !tt.sums)
				if !tt.whole {
					linktest.Tshark(t, capture.File, want)
				}
			})
		}
	}
}

// checkWire compares captured packets with the runs that were sent.
func checkWire(t *testing.T, packets [][]byte, out []link.Run, from, to [6]byte, whole, partialSums bool) {
	t.Helper()
	for i := range out {
		r := &out[i]
		want := outer(r)
		for j := range r.Frames() {
			f := wire.Frame{PartialUDPSum: partialSums}
			if err := f.Decode(packets[0]); err != nil {
				t.Fatalf("run %d frame %d: %v", i, j, err)
			}
			packets = packets[1:]
			if r.Src.Is4() {
				want.ID = r.ID + uint16(j)
			} else {
				want.ID = 0
			}
			if f.Outer != want || f.EtherSrc != from || f.EtherDst != to {
				t.Fatalf("run %d frame %d from %x to %x: %+v, want from %x to %x: %+v", i, j, f.EtherSrc, f.EtherDst,
					f.Outer, from, to, want)
			}
			frame := f.Transport
			if whole {
				if len(frame) != len(r.Buf) {
					t.Fatalf("run %d is %d bytes long, want all %d", i, len(frame), len(r.Buf))
				}
				frame = frame[:r.Size]
			}
			if !f.Outer.Check(frame) {
				t.Fatalf("run %d frame %d has a wrong ICRC", i, j)
			}
			if whole {
				break
			}
		}
	}
}

// A run that comes in one piece is one, and its frames have the identifications from
// Run.ID on.
func TestWholeRuns(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	for _, addrs := range [][2]netip.Addr{{na.Addr4, nb.Addr4}, {na.Addr6, nb.Addr6}} {
		a, b := linktest.OpenIn(t, na, raw, addrs[0]), linktest.OpenIn(t, nb, raw, addrs[1])
		linktest.Meet(t, a, b)
		var psn uint32
		out := []link.Run{linktest.NewRun(a, b, &psn, 62, 1040, 20), linktest.NewRun(a, b, &psn, 1, 40, 0),
			linktest.NewRun(a, b, &psn, 63, 20, 16)}
		for i := range out {
			seal(&out[i], uint16(65_530+20*i))
		}
		linktest.SendAll(t, a, out)
		got := linktest.Collect(t, b, len(linktest.Frames(out...)))
		if len(got) != len(out) {
			t.Fatalf("%d runs arrived, want %d", len(got), len(out))
		}
		for i, r := range got {
			if r.Size != out[i].Size || len(r.Buf) != len(out[i].Buf) {
				t.Errorf("run %d: %d bytes in frames of %d, want %d in frames of %d", i, len(r.Buf), r.Size,
					len(out[i].Buf), out[i].Size)
			}
			checkICRCs(t, &r)
		}
	}
}

// What the receiver's kernel merges (GRO) are runs whose identifications can be told,
// whatever those of the packets were. It waits a while for more packets, so that it
// may merge those of several runs; with the sender's tx-udp-segmentation or tso veth
// would merge nothing.
func TestMerged(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	na.Command(t, "ethtool", "-K", na.IfName, "tx-udp-segmentation", "off", "tso", "off")
	nb.Command(t, "ethtool", "-K", nb.IfName, "gro", "on")
	nb.Command(t, "unshare", "-m", "sh", "-c", "mount -t sysfs none /sys && cd /sys/class/net/"+nb.IfName+
		" && echo 5000000 > gro_flush_timeout && echo 100 > napi_defer_hard_irqs || true")
	a, b := linktest.OpenIn(t, na, raw, na.Addr4), linktest.OpenIn(t, nb, raw, nb.Addr4)
	linktest.Meet(t, a, b)
	var psn uint32
	var out []link.Run
	for _, id := range []uint16{0, 0, 100, 110, 65_530, 4, 7, 5000} { // goes on or jumps, up or down
		r := linktest.NewRun(a, b, &psn, 10, 1040, 0)
		seal(&r, id)
		out = append(out, r)
	}
	linktest.SendAll(t, a, out)
	got := linktest.Collect(t, b, 80)
	if len(got) == 80 {
		require.Missing(t, "needs a kernel that merges UDP packets by their identification, Linux 6.10")
	}
	for _, r := range got {
		checkICRCs(t, &r)
	}
}

// checkICRCs fails unless all frames of r have the identifications from r.ID on.
func checkICRCs(t *testing.T, r *link.Run) {
	t.Helper()
	o := outer(r)
	for i := range r.Frames() {
		if o.ID = r.ID + uint16(i); !r.KnownID || !o.Check(r.Frame(i)) {
			t.Errorf("frame %d of %d: wrong ICRC, or the ID %d is not it", i, r.Frames(), o.ID)
		}
	}
}

// A run that waited for a MAC address leaves in one piece.
func TestFirstRun(t *testing.T) {
	na, nb := linktest.NewVeth(t, 1500)
	a, b := linktest.OpenIn(t, na, raw, na.Addr4), linktest.OpenIn(t, nb, raw, nb.Addr4)
	var psn uint32
	out := []link.Run{linktest.NewRun(a, b, &psn, 62, 1040, 0), linktest.NewRun(a, b, &psn, 20, 40, 20)}
	for i := range out {
		seal(&out[i], uint16(1000*i))
	}
	linktest.SendAll(t, a, out)
	for end := time.Now().Add(require.Patience); a.Stats().TxRuns == 0 && time.Now().Before(end); {
		_ = a.Wait(10*time.Millisecond, false) // woken by the neighbour table
		if _, err := a.Recv(0, nil); err != nil {
			t.Fatal(err)
		}
	}
	got := linktest.Collect(t, b, 83)
	if len(got) != 2 {
		t.Errorf("%d runs arrived, want 2", len(got))
	}
	for _, r := range got {
		checkICRCs(t, &r)
	}
}

// The link says what it does, and refuses what it cannot.
func TestOffload(t *testing.T) {
	na, _ := linktest.NewVeth(t, 1500)
	with := func(o rawsock.Offload) linktest.Opener {
		return func(a []netip.Addr) (link.Link, error) { return rawsock.Open(a, rawsock.Options{Offload: o}) }
	}
	note := func(o rawsock.Offload) string {
		l := linktest.OpenIn(t, na, with(o), na.Addr4)
		defer l.Close()
		c := l.Caps()
		if c.ID != link.IDFree || c.RunFrames != 64 || c.RunBytes != 65000 {
			t.Errorf("offload %v: capabilities %+v, want ID %v, 64 frames and 65000 bytes a run", o, c, link.IDFree)
		}
		return c.Note
	}
	const socket = "packet socket, receive buffer 4096 KiB, "
	const whole, singly = socket + "segmentation offload", socket + "frame by frame: "
	for _, tt := range []struct {
		offload rawsock.Offload
		want    string
	}{
		{rawsock.OffloadAuto, whole},
		{rawsock.OffloadOn, whole},
		{rawsock.OffloadOff, singly + "as asked"},
	} {
		if got := note(tt.offload); got != tt.want {
			t.Errorf("offload %v: note %q, want %q", tt.offload, got, tt.want)
		}
	}
	na.Command(t, "ip", "link", "set", "lo", "down")
	if got := note(rawsock.OffloadAuto); !strings.HasPrefix(got, singly+"send a run by lo: network is down") {
		t.Errorf("without loopback: note %q, want first %q", got, singly+"send a run by lo: network is down")
	}
	err := na.Do(func() error {
		l, err := with(rawsock.OffloadOn)([]netip.Addr{na.Addr4})
		if err == nil {
			err = errors.Join(errors.New("opened"), l.Close())
		}
		return err
	})
	if !strings.Contains(err.Error(), "segmentation offload is not possible") ||
		!strings.Contains(err.Error(), "use OffloadAuto") {
		t.Errorf("without loopback: %v, want %q and %q", err, "segmentation offload is not possible", "use OffloadAuto")
	}
}
