package linktest

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// multicast are the parts of the contract about groups.
var multicast = []contractTest{
	{"Groups/Receive", testGroupReceive},
	{"Groups/Members", testGroupMembers},
	{"Groups/Apart", testGroupsApart},
	{"Groups/Leave", testGroupLeave},
	{"Groups/Refused", testGroupRefused},
	{"Groups/Wait", testGroupWait},
	{"Groups/AnyGoroutine", testGroupAnyGoroutine},
	{"Groups/Close", testGroupClose},
	{"Groups/NoAllocation", testGroupNoAllocation},
}

var groups atomic.Uint32

// NewGroup returns a multicast group of the IP version of l's first address that no other test uses, in this process
// or, most likely, in another one.
func NewGroup(l link.Link) ib.GID {
	n := uint32(os.Getpid())<<8 + groups.Add(1)
	g := ib.GID{0: 0xFF, 1: 0x05} // site-local scope
	if l.Caps().Local[0].Is4() {
		g = ib.GID{10: 0xFF, 11: 0xFF}
		n = 239<<24 | n&0xFFFFFF // organization-local scope
	}
	binary.BigEndian.PutUint32(g[12:], n)
	return g
}

// GroupMAC returns the MAC address of a group made by NewGroup (RFC 1112, RFC 2464).
func GroupMAC(g ib.GID) [6]byte {
	if g.Is4() {
		return [6]byte{0x01, 0x00, 0x5E, g[13] & 0x7F, g[14], g[15]}
	}
	return [6]byte{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// NewDatagram returns a UD SEND from a to a group, with size bytes in total.
func NewDatagram(a link.Link, group ib.GID, size int) link.Run {
	r := link.Run{Src: a.Caps().Local[0], Dst: group, SrcPort: 0xC123, TrafficClass: 0x68, HopLimit: 33, Size: size,
		Buf: make([]byte, size)}
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.UDSendOnly, PKey: ib.DefaultPKey, DestQP: ib.QPNMulticast}}
	p.DETH = wire.DETH{QKey: 0x01234567, SrcQP: 0x12}
	p.PutHeaders(r.Buf)
	return r
}

// join joins the group on each of the links.
func join(t *testing.T, group ib.GID, links ...link.Link) {
	t.Helper()
	for _, l := range links {
		if err := l.Join(group); err != nil {
			t.Fatalf("Join: %v", err)
		}
	}
}

// sendTo sends runs of all shapes from a to a group and returns them.
func sendTo(t *testing.T, a link.Link, group ib.GID) []link.Run {
	t.Helper()
	var next uint32
	out := []link.Run{NewRun(a, a, &next, 1, 64, 0), NewRun(a, a, &next, min(a.Caps().RunFrames-1, 20), 1040, 68),
		NewRun(a, a, &next, 1, largest(a, a), 0)}
	for i := range out {
		out[i].Dst = group
	}
	SendAll(t, a, out)
	return out
}

// onlyMarker fails if the link to has received anything but what from sends now.
func onlyMarker(t *testing.T, what string, from, to link.Link) {
	t.Helper()
	var next uint32
	marker := NewRun(from, to, &next, 1, 72, 0)
	SendAll(t, from, []link.Run{marker})
	got := Collect(t, to, 1)
	in := make([]link.Run, 16)
	n, err := to.Recv(0, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(got, in[:n]...) {
		if r.Dst != marker.Dst || len(r.Buf) != len(marker.Buf) {
			t.Errorf("%s: received %d frames to %v", what, r.Frames(), r.Dst.Addr())
		}
	}
}

// A member receives frames to the group; a link that only sends to it does not.
func testGroupReceive(t *testing.T, a, b link.Link) {
	group := NewGroup(a)
	join(t, group, b)
	out := sendTo(t, a, group)
	got := Collect(t, b, len(Frames(out...)))
	same(t, got, out)
	port := out[0].SrcPort
	if p := a.Caps().FixedSrcPort; p != 0 {
		port = p
	}
	for _, r := range got {
		if r.Src != out[0].Src || r.Dst != group {
			t.Errorf("from %v to %v, want from %v to %v", r.Src.Addr(), r.Dst.Addr(), out[0].Src.Addr(), group.Addr())
		}
		if r.SrcPort != port || r.TrafficClass != out[0].TrafficClass || r.HopLimit != out[0].HopLimit {
			t.Errorf("source port %d, traffic class %#x, hop limit %d; want %d, %#x, %d",
				r.SrcPort, r.TrafficClass, r.HopLimit, port, out[0].TrafficClass, out[0].HopLimit)
		}
	}
	onlyMarker(t, "no member", b, a)
	onlyMarker(t, "once", a, b)
	if s := a.Stats(); s.TxErrors != 0 {
		t.Errorf("sender counts %+v", s)
	}
}

// Each member receives each frame once, including the sender's own frames.
func testGroupMembers(t *testing.T, a, b link.Link) {
	group := NewGroup(a)
	join(t, group, a, b)
	for _, from := range []link.Link{a, b} {
		out := sendTo(t, from, group)
		for _, to := range []link.Link{a, b} {
			got := Collect(t, to, len(Frames(out...)))
			same(t, got, out)
			for _, r := range got {
				if r.Src != out[0].Src || r.Dst != group {
					t.Errorf("from %v to %v, want from %v to %v", r.Src.Addr(), r.Dst.Addr(), out[0].Src.Addr(),
						group.Addr())
				}
			}
		}
	}
	onlyMarker(t, "once", b, a)
	onlyMarker(t, "once", a, b)
}

// Groups are separate, even if they have the same MAC address.
func testGroupsApart(t *testing.T, a, b link.Link) {
	first, second := NewGroup(a), NewGroup(a)
	sameMAC := first
	if first.Is4() {
		sameMAC[12]--
	} else {
		sameMAC[2] = 7
	}
	join(t, first, b)
	sendTo(t, a, second)
	sendTo(t, a, sameMAC)
	onlyMarker(t, "other groups", a, b)
	join(t, second, b)
	toSecond, toFirst := sendTo(t, a, second), sendTo(t, a, first)
	frames := map[ib.GID][]link.Run{}
	for _, r := range Collect(t, b, len(Frames(toFirst...))+len(Frames(toSecond...))) {
		frames[r.Dst] = append(frames[r.Dst], r)
	}
	same(t, frames[first], toFirst)
	same(t, frames[second], toSecond)
}

func testGroupLeave(t *testing.T, a, b link.Link) {
	group, other := NewGroup(a), NewGroup(a)
	join(t, group, a, b)
	join(t, other, b)
	for range 2 {
		out := sendTo(t, a, group)
		same(t, Collect(t, a, len(Frames(out...))), out)
		same(t, Collect(t, b, len(Frames(out...))), out)
		if err := b.Leave(group); err != nil {
			t.Fatalf("Leave: %v", err)
		}
		out = sendTo(t, a, group)
		same(t, Collect(t, a, len(Frames(out...))), out) // the remaining member still receives
		onlyMarker(t, "after Leave", a, b)
		out = sendTo(t, a, other)
		same(t, Collect(t, b, len(Frames(out...))), out)
		join(t, group, b)
	}
}

func testGroupRefused(t *testing.T, a, b link.Link) {
	group := NewGroup(a)
	foreign := ib.GID{0: 0xFF, 1: 0x05, 15: 1}
	if !group.Is4() {
		foreign = ib.GID{10: 0xFF, 11: 0xFF, 12: 239, 15: 1}
	}
	join(t, group, b)
	for _, tt := range []struct {
		name string
		call func(ib.GID) error
		gid  ib.GID
	}{
		{"Join a host", b.Join, a.Caps().Local[0]},
		{"Join the zero GID", b.Join, ib.GID{}},
		{"Join a group of the other IP version", b.Join, foreign},
		{"Join a group again", b.Join, group},
		{"Leave one's own address", b.Leave, b.Caps().Local[0]},
		{"Leave a group that was not joined", b.Leave, NewGroup(a)},
	} {
		err := tt.call(tt.gid)
		var refused *ib.AttrError
		if !errors.Is(err, ib.ErrInvalid) || !errors.As(err, &refused) {
			t.Errorf("%s: %v, want an *ib.AttrError that wraps ErrInvalid", tt.name, err)
		}
	}
	out := sendTo(t, a, group)
	same(t, Collect(t, b, len(Frames(out...))), out)
	onlyMarker(t, "once", a, b)
}

// Frames to a group end a Wait, even one that began before the link joined; joining does not.
func testGroupWait(t *testing.T, a, b link.Link) {
	group := NewGroup(a)
	got := make(chan error, 1)
	go func() {
		in := make([]link.Run, 4)
		for {
			err := b.Wait(-1, false)
			if err != nil {
				got <- err
				return
			}
			if n, err := b.Recv(0, in); n > 0 || err != nil {
				got <- err
				return
			}
		}
	}()
	join(t, group, b)
	SendAll(t, a, []link.Run{NewDatagram(a, group, 64)})
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("a frame to a group does not end Wait")
	}
	if err := b.Wait(0, false); err != nil { // consumes a Wake that may be left
		t.Fatal(err)
	}
	start := time.Now()
	if err := b.Wait(20*time.Millisecond, false); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 15*time.Millisecond {
		t.Errorf("Wait for 20ms on an idle member took %v", d)
	}
}

// Join and Leave may be called while another goroutine receives.
func testGroupAnyGoroutine(t *testing.T, a, b link.Link) {
	stay := NewGroup(a)
	join(t, stay, b)
	var done sync.WaitGroup
	for range 2 {
		group := NewGroup(a)
		done.Add(1)
		go func() {
			defer done.Done()
			for range 20 {
				if err := b.Join(group); err != nil {
					t.Errorf("Join: %v", err)
				}
				if err := b.Leave(group); err != nil {
					t.Errorf("Leave: %v", err)
				}
			}
		}()
	}
	for range 50 {
		out := []link.Run{NewDatagram(a, stay, 64)}
		SendAll(t, a, out)
		same(t, Collect(t, b, 1), out)
	}
	done.Wait()
	onlyMarker(t, "after all", a, b)
}

func testGroupClose(t *testing.T, a, b link.Link) {
	group := NewGroup(a)
	join(t, group, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(ib.GID) error{"Join": b.Join, "Leave": b.Leave} {
		if err := call(group); !errors.Is(err, link.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	out := sendTo(t, a, group)
	same(t, Collect(t, a, len(Frames(out...))), out)
}

func testGroupNoAllocation(t *testing.T, a, b link.Link) {
	group := NewGroup(a)
	join(t, group, a, b)
	out := []link.Run{NewDatagram(a, group, 1040)}
	in := make([]link.Run, 16)
	step := func() {
		if n, err := a.Send(0, out); n != 1 || err != nil {
			t.Fatalf("Send: %d, %v", n, err)
		}
		receive(t, a, 1, in)
		receive(t, b, 1, in)
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations for a frame that two members receive, want 0", n)
	}
}
