package wrap_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

func TestPcap(t *testing.T) {
	epoch := time.Date(2020, 2, 2, 2, 2, 2, 0, time.UTC)
	rec := newRecorder()
	rec.caps.ID, rec.caps.FixedSrcPort, rec.caps.NetIf = link.IDIndex, link.Port, "eth9"
	var file bytes.Buffer
	c, err := wrap.Pcap(rec, &file, epoch)
	if err != nil {
		t.Fatal(err)
	}
	l := wrap.Seal(c)
	send(t, l, 1*ms, newRun(0, 3, 64, 32))

	// Three kinds of received frames: the identification is known, it must be solved, or only the first of a merged run
	// is known.
	received := newRecorder()
	peerLink := wrap.Seal(received)
	for range 5 { // the sender's counter does not start at 0
		send(t, peerLink, 0, newRun(0, 3, 64, 0))
	}
	known, solved, merged := received.sent[1], received.sent[2], received.sent[3]
	known.KnownID = true
	solved.ID = 0
	merged.KnownID = true
	rec.rx = []link.Run{known, solved, merged}
	if n, err := l.Recv(2*ms, make([]link.Run, 8)); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if err := l.Close(); err != nil || c.Err() != nil {
		t.Fatal(err, c.Err())
	}

	r, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.LinkType() != layers.LinkTypeEthernet {
		t.Fatalf("link type %v, want %v", r.LinkType(), layers.LinkTypeEthernet)
	}
	wantIDs := []uint16{0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for i, want := range wantIDs {
		data, ci, err := r.ReadPacketData()
		if err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		var f wire.Frame
		if err := f.Decode(data); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if f.Outer.ID != want || !f.Outer.Check(f.Transport) || f.Outer.HopLimit != 33 || f.Outer.TrafficClass != 0x6B {
			t.Errorf("packet %d: headers %+v, ICRC right: %v; want ID %d", i, f.Outer, f.Outer.Check(f.Transport), want)
		}
		itf, _ := r.Interface(ci.InterfaceIndex)
		name, at := "eth9 sent", epoch.Add(time.Millisecond)
		if i >= 4 {
			name, at = "eth9 received", epoch.Add(2*time.Millisecond)
		}
		if itf.Name != name || !ci.Timestamp.Equal(at) {
			t.Errorf("packet %d is on %q at %v, want %q at %v", i, itf.Name, ci.Timestamp, name, at)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("more packets than were sent: %v, want %v", err, io.EOF)
	}

	path := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	linktest.Tshark(t, path, len(wantIDs))
}

// A datagram to a group is captured as it is on the wire.
func TestPcapGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := mem.NewNetwork()
	c, err := wrap.Pcap(n.Open([]ib.GID{local}, mem.Options{}), file, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	l := wrap.Seal(c)
	group := linktest.NewGroup(l)
	if err := l.Join(group); err != nil {
		t.Fatal(err)
	}
	send(t, l, 0, linktest.NewDatagram(l, group, 64))
	linktest.Collect(t, l, 1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	linktest.Tshark(t, path, 2) // sent and received
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mac, host := linktest.GroupMAC(group), []byte{2, 0, 10, 0, 0, 1}
	if n := bytes.Count(b, append(mac[:], host...)); n != 2 {
		t.Errorf("%d frames from %x to %x, want 2", n, host, mac)
	}
}

// The links of a device with several shards write to one file at the same time.
func TestPcapBeside(t *testing.T) {
	const links, each = 4, 200
	var file bytes.Buffer
	var captures []*wrap.Capturer
	for i := range links {
		if i == 0 {
			c, err := wrap.Pcap(newRecorder(), &file, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			captures = append(captures, c)
			continue
		}
		captures = append(captures, captures[0].Beside(newRecorder()))
	}
	var all sync.WaitGroup
	for _, c := range captures {
		all.Go(func() {
			l := wrap.Seal(c)
			for range each {
				send(t, l, 0, newRun(0, 1, 64, 0))
			}
		})
	}
	all.Wait()
	for _, c := range captures {
		if err := errors.Join(c.Close(), c.Err()); err != nil {
			t.Fatal(err)
		}
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range links * each {
		data, _, err := r.ReadPacketData()
		if err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		var f wire.Frame
		if err := f.Decode(data); err != nil || !f.Outer.Check(f.Transport) {
			t.Fatalf("packet %d: %v, or its ICRC is wrong", i, err)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("more packets than were sent: %v, want %v", err, io.EOF)
	}
}

// A full disk ends the capture, not the link.
func TestPcapWriteError(t *testing.T) {
	rec := newRecorder()
	c, err := wrap.Pcap(rec, &fullDisk{room: 300}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		send(t, c, 0, newRun(0, 60, 1040, 0))
	}
	if err := c.Err(); !errors.Is(err, errFull) {
		t.Errorf("Err %v, want %v", err, errFull)
	}
	if len(rec.sent) != 10 {
		t.Errorf("%d runs sent, want 10", len(rec.sent))
	}
	if err := c.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v, want %v", err, errFull)
	}
	if _, err := wrap.Pcap(rec, &fullDisk{}, time.Time{}); !errors.Is(err, errFull) {
		t.Errorf("Pcap: %v, want %v", err, errFull)
	}
}

var errFull = errors.New("disk full")

type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestTrace(t *testing.T) {
	rec := newRecorder()
	type seen struct {
		now  ib.Instant
		sent bool
		psn  ib.PSN
		op   wire.Opcode
		id   uint16
		ok   bool
	}
	var got []seen
	l := wrap.Seal(wrap.Trace(rec, func(e *wrap.Event) {
		got = append(got, seen{e.Now, e.Sent, e.Packet.PSN, e.Packet.Opcode, e.Outer.ID, e.Err == nil &&
			e.Outer.Check(e.Frame)})
	}))
	send(t, l, 4, newRun(7, 1, 64, 32))
	junk := link.Run{Src: peer, Dst: local, Size: 16, Buf: bytes.Repeat([]byte{0xFF}, 16)}
	rec.rx = append(rec.sent, junk)
	if n, err := l.Recv(5, make([]link.Run, 4)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	want := []seen{
		{4, true, 7, wire.RCSendMiddle, 0, true},
		{4, true, 8, wire.RCSendLast, 1, true},
		{5, false, 7, wire.RCSendMiddle, 0, true},
		{5, false, 8, wire.RCSendLast, 1, true},
	}
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			t.Fatalf("event %d: %+v, want %+v", i, got, w)
		}
	}
	if len(got) != 5 || got[4].ok {
		t.Errorf("junk: %+v, want an event with an error", got[4:])
	}
}

// onWire notes when its frames are on the wire.
type onWire struct {
	*recorder
	at time.Time
}

func (l *onWire) Send(now ib.Instant, out []link.Run) (int, error) {
	l.at = time.Now()
	return l.recorder.Send(now, out)
}

func (l *onWire) Recv(now ib.Instant, in []link.Run) (int, error) {
	l.at = time.Now()
	return l.recorder.Recv(now, in)
}

// TestTraceTimes: a frame is traced before it is on the wire where it is sent, and after that where it arrives.
func TestTraceTimes(t *testing.T) {
	below := &onWire{recorder: newRecorder()}
	var at time.Time
	l := wrap.Trace(below, func(e *wrap.Event) { at = e.At })
	send(t, l, 4, newRun(7, 1, 64, 32))
	if at.IsZero() || at.After(below.at) {
		t.Errorf("sent at %v, on the wire at %v", at, below.at)
	}
	below.rx = below.sent
	if n, err := l.Recv(5, make([]link.Run, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if at.Before(below.at) {
		t.Errorf("received at %v, on the wire at %v", at, below.at)
	}
}

// The whole stack fulfils the contract of a Link.
func TestContract(t *testing.T) {
	stack := func(l link.Link) link.Link {
		l = wrap.Trace(wrap.Loopback(l), func(*wrap.Event) {})
		c, err := wrap.Pcap(l, io.Discard, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return wrap.Fault(wrap.Seal(wrap.Corrupt(c, wrap.FaultConfig{})), wrap.FaultConfig{OnSend: true, OnRecv: true})
	}
	linktest.Run(t, func(testing.TB) (a, b link.Link) {
		n := mem.NewNetwork()
		return stack(n.Open([]ib.GID{local}, mem.Options{})), stack(n.Open([]ib.GID{peer}, mem.Options{}))
	})
}
