package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

func options() Options {
	return Options{Client: linktest.Loopback(), Server: linktest.Loopback(), Measure: 50 * time.Millisecond}
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// labels lists an exchange's packets, without what follows the PSN. It leaves out retransmissions, which a stall of the
// machine can cause.
func labels(e *Exchange) []string {
	var list []string
	for _, p := range e.Packets {
		if p.Again {
			continue
		}
		name, _, _ := strings.Cut(p.Label, " psn=")
		list = append(list, p.From+": "+name)
	}
	return list
}

func TestTour(t *testing.T) {
	rep := run(t, options())
	want := []string{
		"client: SEND First, client: SEND Middle, client: SEND Last, server: ACK",
		"client: WRITE First, client: WRITE Middle, client: WRITE Last, server: ACK",
		"client: READ Request, server: READ Response First, server: READ Response Middle, server: READ Response Last",
		"client: CmpSwap, server: ATOMIC ACK, client: FetchAdd, server: ATOMIC ACK",
	}
	if len(rep.Tour) != len(want) {
		t.Fatalf("%d exchanges, want %d", len(rep.Tour), len(want))
	}
	for i, e := range rep.Tour {
		if got := strings.Join(labels(e), ", "); got != want[i] {
			t.Errorf("%s: %s, want %s", e.Title, got, want[i])
		}
	}
	if rep.Write.Messages < slots || rep.Write.BytesPerSecond <= 0 || rep.PingPong.Messages < 2 ||
		rep.PingPong.MedianUS <= 0 {
		t.Errorf("figures %+v %+v, want at least %d and 2 messages, and what they took", rep.Write, rep.PingPong, slots)
	}
	if rep.Losses.Dropped != 0 {
		t.Errorf("%d packets dropped, though nothing was to be, want none", rep.Losses.Dropped)
	}
	if rep.Client.Counters["rdma_sends"] == 0 || rep.Server.Counters["rdma_recvs"] == 0 {
		t.Errorf("counters %v and %v; want some in both", rep.Client.Counters, rep.Server.Counters)
	}
}

// TestDrop: losses are shown, explained and made good.
func TestDrop(t *testing.T) {
	o := options()
	o.Drop, o.Seed = 0.05, 7
	rep := run(t, o)
	if rep.Losses.Dropped == 0 || rep.Losses.Recoveries == 0 {
		t.Errorf("losses %+v, want some, recovered", rep.Losses)
	}
	lost, again := 0, 0
	for _, p := range rep.Tour[0].Packets {
		if p.Lost {
			lost++
		}
		if p.Again {
			again++
		}
	}
	if lost == 0 || again == 0 {
		t.Errorf("%d packets of %v were lost and %d sent again; want some of both", lost, rep.Tour[0].Packets, again)
	}
	var b strings.Builder
	if err := rep.WriteText(&b, term.Terminal{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"X", "lost on purpose", "sent again", "completer_retry_err", "retransmissions"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text does not say %q:\n%s", want, b.String())
		}
	}
}

// TestMemory: the tour needs no sockets; two demonstrations at the same addresses do not meet.
func TestMemory(t *testing.T) {
	var capture bytes.Buffer
	o := Options{Memory: true, Drop: 0.05, Seed: 7, Measure: time.Millisecond, Pcap: &capture}
	rep := run(t, o)
	if len(rep.Tour) != len(stops) || rep.Client.Link != "mem" || rep.Losses.Dropped == 0 {
		t.Errorf("%+v, want %d stops in memory, with losses", rep, len(stops))
	}
	r, err := pcapgo.NewNgReader(&capture, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ReadPacketData(); err != nil {
		t.Errorf("the capture: %v", err)
	}
	var b strings.Builder
	if err := rep.WriteText(&b, term.Terminal{}); err != nil || !strings.Contains(b.String(), "network in memory") {
		t.Errorf("%v, want %q\n%s", err, "network in memory", b.String())
	}
	if _, err := Run(t.Context(), Options{Memory: true, Daemon: &Daemon{}}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("in memory and through a daemon: %v, want %v", err, ib.ErrInvalid)
	}
}

// TestMTU: the tour's message takes as many packets as it needs.
func TestMTU(t *testing.T) {
	for _, c := range []struct {
		mtu     ib.MTU
		packets int
	}{{ib.MTU256, 10}, {ib.MTU2048, 2}, {ib.MTU4096, 1}} {
		o := options()
		o.MTU = c.mtu
		n := 0
		for _, p := range run(t, o).Tour[1].Packets {
			if p.From == "client" && !p.Again {
				n++
			}
		}
		if n != c.packets {
			t.Errorf("MTU %d: RDMA WRITE of %d bytes in %d packets, want %d", c.mtu, tourBytes, n, c.packets)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"drop": func(o *Options) { o.Drop = 0.3 },
		"mtu":  func(o *Options) { o.MTU = 1000 },
	} {
		o := options()
		change(&o)
		var attr *ib.AttrError
		if _, err := Run(t.Context(), o); !errors.As(err, &attr) || attr.Allowed == "" {
			t.Errorf("%s: error %v, want an *ib.AttrError that says what is allowed", name, err)
		}
	}
	o := options()
	o.Server = o.Client
	if _, err := Run(t.Context(), o); !errors.Is(err, port.ErrTaken) {
		t.Errorf("one address for both: error %v, want %v", err, port.ErrTaken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, options()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v, want %v", err, context.Canceled)
	}
}

// TestDifferenceIsNamed: wrong data are an error that says which byte.
func TestDifferenceIsNamed(t *testing.T) {
	want := make([]byte, 100)
	fill(want, 1)
	got := bytes.Clone(want)
	if err := compare(got, want); err != nil {
		t.Error(err)
	}
	got[17] ^= 1
	err := compare(got, want)
	if !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "byte 17") {
		t.Errorf("error %v, want %v at byte 17", err, ErrData)
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := run(t, options()).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Tour []struct {
			Packets []struct{ Packet string }
		}
		RDMAWrite struct {
			BytesPerSecond float64 `json:"bytes_per_second"`
		} `json:"rdma_write"`
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Tour) != len(stops) || len(back.Tour[0].Packets) == 0 || back.RDMAWrite.BytesPerSecond <= 0 {
		t.Errorf("JSON lacks something, want %d stops, packets and a rate:\n%s", len(stops), b.Bytes())
	}
}

// TestTimeoutIsExplained: what is sent again after a silence is no surprise; what
// is sent again on a NAK, or right behind, needs no words.
func TestTimeoutIsExplained(t *testing.T) {
	at := func(us ib.Instant, p Packet) Packet {
		p.At = us * 1000
		return p
	}
	first, ack := Packet{From: "client", Label: "SEND Only psn=100"},
		Packet{From: "server", Label: "ACK psn=100", Lost: true}
	again := first
	again.Again = true
	for _, c := range []struct {
		name    string
		packets []Packet
		want    int
	}{
		{"timeout", []Packet{at(10, first), at(20, ack), at(4207, again), at(4207, again)}, 1},
		{"two timeouts", []Packet{at(10, first), at(4207, again), at(8404, again)}, 2},
		{"NAK", []Packet{at(10, first), at(20, ack), at(30, again)}, 0},
	} {
		e := &Exchange{Packets: c.packets, locals: []local{{host: "client", text: "post"}}}
		text := e.ladder(4194*time.Microsecond, term.Terminal{})
		if n := strings.Count(text, "no answer within"); n != c.want {
			t.Errorf("%s: %d explanations, want %d:\n%s", c.name, n, c.want, text)
		}
	}
}

// TestRepeated: what counts as sent before.
func TestRepeated(t *testing.T) {
	var r recorder
	r.init(1024)
	request := func(op wire.Opcode, psn ib.PSN) *wire.Packet {
		p := &wire.Packet{}
		p.Opcode, p.PSN, p.RETH.Len = op, psn, uint32(105-psn)*1024-572
		return p
	}
	nak := request(wire.RCAck, 102)
	nak.AETH.Syndrome = wire.NAKSequence
	for i, c := range []struct {
		host string
		p    *wire.Packet
		want bool
	}{
		{"client", request(wire.RCSendFirst, 100), false},
		{"client", request(wire.RCSendMiddle, 101), false},
		{"server", request(wire.RCAck, 101), false},
		{"server", nak, false},
		{"client", request(wire.RCSendMiddle, 101), true},
		{"client", request(wire.RCReadRequest, 102), false}, // 102 to 104
		{"client", request(wire.RCReadRequest, 103), true},  // the rest of it
		{"client", request(wire.RCCompareSwap, 105), false},
		{"server", request(wire.RCAck, 102), false},
		{"server", request(wire.RCReadRespMiddle, 103), false},
		{"server", request(wire.RCReadRespMiddle, 103), true},
	} {
		r.add(c.host, time.Now(), c.p)
		packets, err := r.take(c.p.PSN)
		if err != nil {
			t.Fatal(err)
		}
		if p := packets[0]; p.Again != c.want {
			t.Errorf("packet %d, %s of the %s: again is %v, want %v", i, p.Label, c.host, p.Again, c.want)
		}
	}
}

// TestOrder: packets are listed as they were sent, however late they are reported, and whatever the engines' clocks
// say.
func TestOrder(t *testing.T) {
	var r recorder
	r.init(1024)
	r.began = r.began.Add(-time.Second) // drops, which have the present time, come after the first microseconds
	pass := func(host string, sent bool, turn ib.Instant, at time.Duration, op wire.Opcode, psn ib.PSN) {
		ev := &wrap.Event{Now: turn, At: r.began.Add(at), Sent: sent}
		ev.Packet.Opcode, ev.Packet.PSN = op, psn
		r.passed(host, ev)
	}
	drop := func(turn ib.Instant, op wire.Opcode, psn ib.PSN) {
		p := wire.Packet{}
		p.Opcode, p.PSN = op, psn
		frame := make([]byte, op.HeaderLen()+wire.ICRCLen)
		p.PutHeaders(frame)
		r.lost("client", turn, frame)
	}
	drop(90, wire.RCSendMiddle, 101)
	pass("server", false, 7, 1100, wire.RCSendFirst, 100)
	pass("server", true, 7, 1200, wire.RCAck, 100)
	pass("client", true, 90, 1000, wire.RCSendFirst, 100)
	pass("client", true, 90, 1000, wire.RCSendLast, 102)
	pass("client", false, 80, 1300, wire.RCAck, 100)
	drop(95, wire.RCSendMiddle, 101)
	packets, err := r.take(102)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range packets {
		got = append(got, fmt.Sprintf("%s %d %v %v", p.From, p.PSN, p.Lost, p.Again))
	}
	want := []string{"client 100 false false", "client 101 true false", "client 102 false false",
		"server 100 false false", "client 101 true true"}
	if !slices.Equal(got, want) {
		t.Errorf("packets\n%q, want\n%q", got, want)
	}
}

// capture runs a demonstration into a file.
func capture(t *testing.T, drop float64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "demo.pcapng")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Pcap, o.Drop, o.Seed = f, drop, 7
	run(t, o)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
