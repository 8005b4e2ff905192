package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestGIDOrder(t *testing.T) {
	got := gidOrder(addrs("192.0.2.1", "2001:db8::1", "fe80::1", "192.0.2.2", "169.254.0.1"), "eth7")
	want := addrs("fe80::1%eth7", "192.0.2.1", "2001:db8::1", "192.0.2.2", "169.254.0.1")
	if !slices.Equal(got, want) {
		t.Errorf("GIDs %v, want %v", got, want)
	}
}

// TestPick: the interface of the default route, else the only one that is up.
func TestPick(t *testing.T) {
	lo := Interface{Name: "lo", Up: true, Loopback: true}
	up := func(name string) Interface { return Interface{Name: name, Up: true} }
	down := Interface{Name: "down"}
	for _, c := range []struct {
		name  string
		list  []Interface
		route string
		want  int
	}{
		{"default route", []Interface{lo, up("a"), up("b"), up("c")}, "b", 2},
		{"default route last", []Interface{up("a"), up("b"), up("c")}, "c", 2},
		{"only one", []Interface{lo, down, up("a")}, "", 2},
		{"only one, the route is down", []Interface{lo, down, up("a")}, "down", 2},
		{"two", []Interface{lo, up("a"), up("b")}, "", -1},
		{"three", []Interface{up("a"), up("b"), up("c")}, "", -1},
		{"loopback only", []Interface{lo}, "", -1},
		{"nothing", nil, "", -1},
	} {
		if got := pick(c.list, c.route); got != c.want {
			t.Errorf("%s: picked %d, want %d", c.name, got, c.want)
		}
	}
}

// openDevice opens a device for the time of the test.
func openDevice(t *testing.T, o Options) roce.Device {
	t.Helper()
	dev, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func TestOpenLoopback(t *testing.T) {
	a := linktest.Loopback()
	dev := openDevice(t, Options{Addrs: []netip.Addr{a}})
	caps := dev.Link()
	if caps.Name != "udp" || !slices.Equal(caps.Local, []ib.GID{ib.GIDFromAddr(a)}) || dev.Attr().Name != "goroce_lo" {
		t.Errorf("device %q on %+v; want goroce_lo on udp with %v", dev.Attr().Name, caps, a)
	}
	if !strings.Contains(caps.Note, "automatic choice") {
		t.Errorf("the note %q, want it to say that the choice was automatic", caps.Note)
	}
	if _, err := Open(Options{Addrs: []netip.Addr{a}}); !errors.Is(err, port.ErrTaken) {
		t.Errorf("opened again: error %v, want %v", err, port.ErrTaken)
	}
	named := openDevice(t, Options{Link: "udp", Addrs: []netip.Addr{linktest.Loopback()},
		Device: roce.Options{Name: "mine"}})
	if name := named.Attr().Name; name != "mine" || strings.Contains(named.Link().Note, "automatic") {
		t.Errorf("device %q, note %q; want mine, and nothing of an automatic choice", name, named.Link().Note)
	}
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		is   error
		want string
	}{
		{"link", Options{Link: "carrier pigeon", Addrs: addrs("127.0.0.1")}, ib.ErrInvalid, "auto, udp, rawsock"},
		{"interface", Options{NetIf: "nosuch0"}, ErrNoInterface, "lo (127.0.0.1)"},
		{"address", Options{Addrs: addrs("192.0.2.77")}, nil, "192.0.2.77"},
		{"both", Options{NetIf: "lo", Addrs: addrs("127.0.0.1")}, nil, "one of them"},
	} {
		dev, err := Open(c.o)
		if err == nil {
			dev.Close()
		}
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %v that says %q", c.name, err, c.is, c.want)
		}
	}
}

func TestInterfaces(t *testing.T) {
	list, err := Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(i Interface) bool { return i.Loopback })
	if i < 0 || list[i].Device() != "goroce_lo" || !slices.Contains(list[i].Addrs, netip.MustParseAddr("127.0.0.1")) ||
		list[i].MTU < 1500 {
		t.Errorf("loopback is not there, or not itself: %+v, want goroce_lo with 127.0.0.1, MTU 1500 or more", list)
	}
}

// fake is a kind of link for the test of openLinks.
func fake(name, capability string, err error) linkKind {
	return linkKind{name, capability, func([]netip.Addr, int, *hearing) ([]link.Link, error) {
		if err != nil {
			return nil, err
		}
		return []link.Link{fakeLink{}}, nil
	}}
}

// openOne opens the link of a device with one shard.
func openOne(name string, addrs []netip.Addr) (link.Link, error) {
	links, err := openLinks(name, addrs, 1, nil)
	if err != nil {
		return nil, err
	}
	return links[0], nil
}

type fakeLink struct{ link.Link }

func (fakeLink) Caps() link.Caps { return link.Caps{Note: "a fake"} }

// TestChoice: without a privilege "auto" takes the next link and says so once; who
// asks for a link by name is told what it needs.
func TestChoice(t *testing.T) {
	defer func(d []linkKind) { linkKinds = d }(linkKinds)
	refused := fmt.Errorf("socket: %w", fs.ErrPermission)
	linkKinds = []linkKind{fake("first", "CAP_FIRST", refused), fake("second", "", nil)}

	l, err := openOne("auto", nil)
	if err != nil {
		t.Fatal(err)
	}
	if note := l.Caps().Note; strings.Count(note, "CAP_FIRST") != 1 || !strings.Contains(note, "second: a fake") {
		t.Errorf("note %q, want the capability, once, and what was chosen", note)
	}
	var missing *CapabilityError
	if _, err := openOne("first", nil); !errors.As(err, &missing) || missing.Capability != "CAP_FIRST" ||
		!errors.Is(err, ErrCapability) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("asked for by name: error %v, want a *CapabilityError", err)
	}

	broken := errors.New("broken")
	linkKinds[0] = fake("first", "", broken)
	if _, err := openOne("", nil); !errors.Is(err, broken) {
		t.Errorf("auto went on: %v, want %v", err, broken)
	}
	linkKinds = []linkKind{fake("first", "CAP_FIRST", refused), fake("second", "CAP_SECOND", refused)}
	if _, err := openOne("", nil); !errors.Is(err, ErrCapability) {
		t.Errorf("no link at all: error %v, want %v", err, ErrCapability)
	}
}

// TestRawsockNeedsCapability: an ordinary user who asks for it is told what for.
func TestRawsockNeedsCapability(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("skipped: needs an ordinary user, as root lacks no capability")
	}
	dev, err := Open(Options{Link: "rawsock", Addrs: []netip.Addr{linktest.Loopback()}})
	if err == nil {
		dev.Close()
	}
	var missing *CapabilityError
	if !errors.As(err, &missing) || missing.Capability != "CAP_NET_RAW" {
		t.Errorf("error %v, want a *CapabilityError", err)
	}
}

// side is one end of a connection.
type side struct {
	dev roce.Device
	cq  ib.CQ
	mr  ib.MR
	qp  ib.QP
	buf []byte
}

func newSide(t testing.TB, dev roce.Device) *side {
	t.Helper()
	s := &side{dev: dev, buf: make([]byte, 1<<16)}
	pd, err := dev.AllocPD()
	if err == nil {
		s.cq, err = dev.CreateCQ(ib.CQInit{Entries: 16})
	}
	if err == nil {
		s.mr, err = pd.RegMR(ib.MRInit{Buf: s.buf, Access: ib.LocalWrite | ib.RemoteWrite})
	}
	if err == nil {
		s.qp, err = pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true,
			Cap: ib.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) connect(t testing.TB, peer *side, gid int) {
	t.Helper()
	s.connectTo(t, peer, ib.AHAttr{DGID: peer.dev.Link().Local[gid], SGIDIndex: gid}, 14)
}

func (s *side) connectTo(t testing.TB, peer *side, ah ib.AHAttr, timeout uint8) {
	t.Helper()
	attr := ib.QPAttr{Port: 1, Access: ib.RemoteWrite, AH: ah, PathMTU: ib.MTU1024,
		DestQPN: peer.qp.Num(), Timeout: timeout, RetryCnt: 7}
	if err := ib.ModifyTo(s.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS); err != nil {
		t.Fatal(err)
	}
}

// write moves data from one side to the other, in many packets.
func write(t *testing.T, from, to *side) error {
	t.Helper()
	for i := range from.buf {
		from.buf[i] = byte(i * 7)
	}
	wr := ib.SendWR{Opcode: ib.WRWrite, SGL: []ib.SGE{{Addr: from.mr.Addr(), Length: uint32(len(from.buf)),
		LKey: from.mr.LKey()}}, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()}
	if _, err := from.qp.PostSend([]ib.SendWR{wr}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), require.Patience)
	defer cancel()
	if _, err := ib.WaitOne(ctx, from.cq); err != nil {
		return err
	}
	if !bytes.Equal(from.buf, to.buf) {
		return errors.New("data differ")
	}
	return nil
}

// TestStack: every wrapper is in its place. A corruption that a capture shows must
// be refused by the receiver, and losses must be made good.
func TestStack(t *testing.T) {
	var capture bytes.Buffer
	sent, bad := 0, 0
	o := Options{Addrs: []netip.Addr{linktest.Loopback()}, Pcap: &capture,
		Fault: wrap.FaultConfig{Drop: 0.1, Corrupt: 0.1, Seed: 1},
		Trace: func(ev *wrap.Event) {
			if ev.Sent {
				sent++
				if !ev.Outer.Check(ev.Frame) {
					bad++
				}
			}
		}}
	t.Logf("seed %d", o.Fault.Seed)
	a := newSide(t, openDevice(t, o))
	b := newSide(t, openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}}))
	a.connect(t, b, 0)
	b.connect(t, a, 0)
	if err := write(t, a, b); err != nil {
		t.Error(err)
	}
	st := b.dev.Stats()
	if err := a.dev.Close(); err != nil {
		t.Error(err)
	}
	if sent < 64 || bad == 0 || capture.Len() < 64*1024 {
		t.Errorf("%d frames sent, %d of them corrupted, %d bytes captured; want 64, 1, %d or more", sent, bad,
			capture.Len(), 64<<10)
	}
	if st.RxICRCErrors == 0 || st.OutOfSeqRequest == 0 {
		t.Errorf("the receiver saw %d wrong ICRCs and %d gaps; want some of both", st.RxICRCErrors, st.OutOfSeqRequest)
	}
}

// TestShards: as many as were asked for, and the note says how many.
func TestShards(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		dev := openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}, Shards: n})
		said := strings.Contains(dev.Link().Note, fmt.Sprintf("%d shards", n))
		if dev.Shards() != n || said != (n > 1) {
			t.Errorf("asked for %d: %d shards, note %q; want %d, and a note if several", n, dev.Shards(),
				dev.Link().Note, n)
		}
	}
	for _, n := range []int{-2, 3, 32} {
		var attr *ib.AttrError
		if _, err := Open(Options{Addrs: []netip.Addr{linktest.Loopback()}, Shards: n}); !errors.As(err, &attr) ||
			attr.Attr != "Shards" {
			t.Errorf("asked for %d: error %v, want an *ib.AttrError", n, err)
		}
	}
	if _, err := Open(Options{Link: "rawsock", Addrs: []netip.Addr{linktest.Loopback()}, Shards: 2}); !errors.Is(err,
		errors.ErrUnsupported) || !strings.Contains(err.Error(), "one shard") {
		t.Errorf("rawsock: error %v, want one that says that it has one shard", err)
	}
}

// TestShardsFor: one for each four processors, 4 at most.
func TestShardsFor(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 4: 1, 7: 1, 8: 2, 12: 2, 15: 2, 16: 4, 64: 4} {
		if got := shardsFor(processors); got != want {
			t.Errorf("%d processors: %d shards, want %d", processors, got, want)
		}
	}
}

// TestShardsChosen: where nobody asks for a number, one shard will do.
func TestShardsChosen(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	var asked []int
	d := linkKind{open: func(_ []netip.Addr, n int, _ *hearing) ([]link.Link, error) {
		asked = append(asked, n)
		if n > 1 {
			return nil, fmt.Errorf("%d queues: %w", n, errors.ErrUnsupported)
		}
		return []link.Link{fakeLink{}}, nil
	}}
	if links, err := d.openShards(nil, 0, nil); len(links) != 1 || err != nil || !slices.Equal(asked, []int{2, 1}) {
		t.Errorf("asked for %v: %d links, %v; want [2 1] and 1", asked, len(links), err)
	}
	if _, err := d.openShards(nil, 2, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a number that was asked for: error %v, want %v", err, errors.ErrUnsupported)
	}
}

// TestStackOfShards: each shard has wrappers of its own, with faults of its own; the
// trace and the capture have the frames of all.
func TestStackOfShards(t *testing.T) {
	var capture bytes.Buffer
	sent, drops := map[ib.QPN]int{}, map[ib.QPN][]int{}
	o := Options{Addrs: []netip.Addr{linktest.Loopback()}, Shards: 2, Pcap: &capture,
		Trace: func(ev *wrap.Event) {
			if ev.Sent {
				sent[ev.Packet.DestQP]++
			}
		}}
	o.Fault = wrap.FaultConfig{Drop: 0.1, Seed: 1, OnDrop: func(_ ib.Instant, _ *link.Run, frame []byte) {
		qpn := ib.QPN(frame[5])<<16 | ib.QPN(frame[6])<<8 | ib.QPN(frame[7])
		drops[qpn] = append(drops[qpn], sent[qpn]+len(drops[qpn]))
	}}
	t.Logf("seed %d", o.Fault.Seed)
	devA, devB := openDevice(t, o), openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}, Shards: 2})
	var peers []ib.QPN
	var both sync.WaitGroup
	for range 2 {
		a, b := newSide(t, devA), newSide(t, devB)
		a.connect(t, b, 0)
		b.connect(t, a, 0)
		peers = append(peers, b.qp.Num())
		both.Go(func() {
			if err := write(t, a, b); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if err := devA.Close(); err != nil {
		t.Error(err)
	}
	for _, qpn := range peers {
		if sent[qpn] < 64 || len(drops[qpn]) == 0 {
			t.Errorf("to QP %#x: %d frames sent, %d dropped; want at least 64, and some", uint32(qpn), sent[qpn],
				len(drops[qpn]))
		}
	}
	if slices.Equal(drops[peers[0]], drops[peers[1]]) {
		t.Errorf("both shards drop the same frames: %v, want others", drops[peers[0]])
	}
	if capture.Len() < 128*1024 {
		t.Errorf("%d bytes captured, want at least %d", capture.Len(), 128<<10)
	}
}

// TestNamespaces: on a real interface, link-local first, over either link and
// every address; without a default route the only interface is taken.
func TestNamespaces(t *testing.T) {
	require.Root(t)
	for _, name := range []string{"udp", "rawsock"} {
		t.Run(name, func(t *testing.T) {
			nsA, nsB := linktest.NewVeth(t, 1500)
			a, b := openIn(t, nsA, Options{Link: name}), openIn(t, nsB, Options{Link: name})
			table, err := a.GIDs(1)
			if err != nil || len(table) < 2 {
				t.Fatalf("GIDs %v, %v; want at least 2", table, err)
			}
			if first := table[0].GID.Addr(); !first.IsLinkLocalUnicast() || !first.Is6() {
				t.Errorf("GID 0 is %v, want an IPv6 link-local address", first)
			}
			for _, gid := range table {
				x, y := newSide(t, a), newSide(t, b)
				x.connect(t, y, gid.Index)
				y.connect(t, x, gid.Index)
				if err := write(t, x, y); err != nil {
					t.Errorf("from %v: %v", gid.GID.Addr(), err)
				}
			}
		})
	}
}

func openIn(t *testing.T, ns *linktest.Namespace, o Options) (dev roce.Device) {
	t.Helper()
	err := ns.Do(func() (err error) {
		dev, err = Open(o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}
