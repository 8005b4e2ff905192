package host

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// openPair opens a live device, named "a", and another, and connects a QP of each.
func openPair(t *testing.T, live *Live) (a, b *side) {
	t.Helper()
	a = newSide(t, openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}, Live: live,
		Device: roce.Options{Name: "a"}}))
	b = newSide(t, openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}}))
	a.connect(t, b, 0)
	b.connect(t, a, 0)
	return a, b
}

// TestLiveRules: exactly one packet is lost or corrupted, that one is repaired and
// counted, and nothing is disturbed before and after.
func TestLiveRules(t *testing.T) {
	var live Live
	a, b := openPair(t, &live)
	if err := write(t, a, b); err != nil {
		t.Fatal(err)
	}
	if st := b.dev.Stats(); st.OutOfSeqRequest != 0 {
		t.Fatalf("%d gaps before there was a rule, want 0", st.OutOfSeqRequest)
	}
	// The second WRITE has PSNs 64 to 127.
	drop, err := live.AddRule("a", wrap.Rule{Action: wrap.ActDrop, Direction: wrap.DirOut, Count: 1,
		Match: wrap.Match{PeerQPN: b.qp.Num()}, PSN: &wrap.PSNRange{First: 70, Last: 70}})
	if err != nil {
		t.Fatal(err)
	}
	corrupt, err := live.AddRule("", wrap.Rule{Action: wrap.ActCorrupt, Direction: wrap.DirOut, Count: 1,
		PSN: &wrap.PSNRange{First: 90, Last: 90}})
	if err != nil {
		t.Fatal(err)
	}
	if err := write(t, a, b); err != nil {
		t.Error(err)
	}
	st := b.dev.Stats()
	if st.OutOfSeqRequest == 0 || st.RxICRCErrors != 1 {
		t.Errorf("the receiver saw %d gaps and %d wrong ICRCs, want some and 1", st.OutOfSeqRequest, st.RxICRCErrors)
	}
	list, err := live.Rules("")
	if err != nil || len(list) != 2 || list[0].ID != drop.ID || list[0].Hits != 1 || list[0].Device != "a" ||
		list[1].ID != corrupt.ID || list[1].Hits != 1 {
		t.Errorf("rules %+v, %v;\nwant those of IDs %d and %d, hit once", list, err, drop.ID, corrupt.ID)
	}
	if err := live.RemoveRule("a", drop.ID); err != nil {
		t.Error(err)
	}
	if n, err := live.ClearRules(""); n != 1 || err != nil {
		t.Errorf("cleared %d, %v; want 1", n, err)
	}
	gaps := b.dev.Stats().OutOfSeqRequest
	if err := write(t, a, b); err != nil {
		t.Error(err)
	}
	if st := b.dev.Stats(); st.OutOfSeqRequest != gaps || st.RxICRCErrors != 1 {
		t.Errorf("the receiver saw more after the rules were gone: %+v, want %d gaps, 1 wrong ICRC", st, gaps)
	}
}

// TestLiveCapture: a capture of one QP has both ways of its connection, and nothing of
// another one on the same device.
func TestLiveCapture(t *testing.T) {
	var live Live
	a, b := openPair(t, &live)
	other := newSide(t, a.dev)
	otherB := newSide(t, b.dev)
	other.connect(t, otherB, 0)
	otherB.connect(t, other, 0)
	live.Connection = func(device string, qpn ib.QPN) (ib.GID, ib.QPN, bool) {
		return b.dev.Link().Local[0], b.qp.Num(), device == "a" && qpn == a.qp.Num()
	}
	var file bytes.Buffer
	c, err := live.Capture("", &file, wrap.Match{QPN: a.qp.Num()})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct{ from, to *side }{{a, b}, {other, otherB}} {
		if err := write(t, s.from, s.to); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.dev.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Done():
	case <-time.After(require.Patience):
		t.Fatal("the capture goes on after the device was closed")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requests, acks := map[ib.PSN]bool{}, 0
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		var f wire.Frame
		var p wire.Packet
		if err == nil {
			err = f.Decode(data)
		}
		if err == nil {
			err = p.Decode(f.Transport[:len(f.Transport)-wire.ICRCLen])
		}
		switch {
		case err != nil:
			t.Fatal(err)
		case p.DestQP == b.qp.Num() && p.Opcode.IsWrite():
			requests[p.PSN] = true
		case p.DestQP == a.qp.Num() && p.Opcode == wire.RCAck:
			acks++
		default:
			t.Errorf("captured %v to QP %#x", p.Opcode, p.DestQP)
		}
	}
	if len(requests) != 64 || acks == 0 {
		t.Errorf("%d requests and %d ACKs, want 64 and some", len(requests), acks)
	}
	if names := live.Devices(); len(names) != 0 {
		t.Errorf("devices %v are live after they were closed, want none", names)
	}
}

func TestLiveErrors(t *testing.T) {
	var live Live
	var attr *ib.AttrError
	if _, err := live.Capture("", io.Discard, wrap.Match{}); !errors.As(err, &attr) ||
		!strings.Contains(attr.Allowed, "no device") {
		t.Errorf("without a device: error %v, want %q", err, "no device")
	}
	for _, name := range []string{"a", "b"} {
		openDevice(t, Options{Addrs: []netip.Addr{linktest.Loopback()}, Live: &live, Device: roce.Options{Name: name}})
	}
	for _, name := range []string{"", "c"} {
		_, err := live.AddRule(name, wrap.Rule{Action: wrap.ActDrop})
		if !errors.As(err, &attr) || attr.Allowed != "a, b" || !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("device %q of two: error %v, want \"a, b\" allowed, %v", name, err, ib.ErrInvalid)
		}
	}
	if _, err := live.Rules("c"); !errors.As(err, &attr) {
		t.Errorf("rules of c: error %v", err)
	}
	if err := live.RemoveRule("a", 7); !errors.As(err, &attr) || attr.Attr != "ID" {
		t.Errorf("remove: error %v, want one of the ID", err)
	}
}
