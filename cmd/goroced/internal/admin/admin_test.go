package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/gopacket/pcapgo"

	runner "github.com/goroce/goroce/cmd/goroced/internal/serve"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// daemon is what a test talks to.
type daemon struct {
	live   host.Live
	socket string
	server *httptest.Server
	client *Client
}

// serve starts the handlers on a Unix socket.
func serve(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{socket: filepath.Join(t.TempDir(), "admin")}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	Register(mux, &d.live)
	d.server = httptest.NewUnstartedServer(mux)
	_ = d.server.Listener.Close()
	d.server.Listener = l
	d.server.Start()
	t.Cleanup(func() {
		d.server.CloseClientConnections()
		d.server.Close()
	})
	d.client = NewClient(d.socket)
	return d
}

// TestHealth: a daemon of which a part hangs is not healthy, and the client learns which part.
func TestHealth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				t.Errorf("got a request for %s, want /healthz", r.URL.Path)
			}
			runner.WriteJSON(w, status, map[string]string{"error": "shards [1] of device blue take no turns"})
		})}}
	s.Start()
	defer s.Close()
	if err := NewClient(path).Health(t.Context()); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	status = http.StatusServiceUnavailable
	if err := NewClient(path).Health(t.Context()); err == nil || !strings.Contains(err.Error(), "shards [1]") {
		t.Errorf("got %v, want what the daemon says", err)
	}
}

// open opens a device of the daemon.
func (d *daemon) open(t *testing.T, name string) roce.Device {
	t.Helper()
	dev, err := host.Open(host.Options{Addrs: []netip.Addr{linktest.Loopback()}, Live: &d.live,
		Device: roce.Options{Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// pair is two UD QPs of one device; what the first sends the second receives.
type pair struct {
	from, to ib.QP
	cq       ib.CQ
	wr       ib.SendWR
	recv     ib.RecvWR
}

func newPair(t *testing.T, dev ib.Device) *pair {
	t.Helper()
	var p pair
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	must(err)
	p.cq, err = dev.CreateCQ(ib.CQInit{Entries: 64})
	must(err)
	mr, err := pd.RegMR(ib.MRInit{Buf: make([]byte, 4096), Access: ib.LocalWrite})
	must(err)
	for _, q := range []*ib.QP{&p.from, &p.to} {
		*q, err = pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: p.cq, RecvCQ: p.cq,
			Cap: ib.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
		must(err)
		attr := ib.QPAttr{State: ib.StateInit, Port: 1, QKey: 5}
		must((*q).Modify(attr, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey))
		attr.State = ib.StateRTR
		must((*q).Modify(attr, ib.AttrState))
		attr.State = ib.StateRTS
		must((*q).Modify(attr, ib.AttrState|ib.AttrSQPSN))
	}
	gids, err := dev.GIDs(1)
	must(err)
	ah, err := pd.CreateAH(ib.AHAttr{DGID: gids[0].GID})
	must(err)
	sge := []ib.SGE{{Addr: mr.Addr(), Length: 1024, LKey: mr.LKey()}}
	p.wr = ib.SendWR{Opcode: ib.WRSend, SGL: sge, AH: ah.Num(), RemoteQPN: p.to.Num(), RemoteQKey: 5}
	p.recv = ib.RecvWR{SGL: []ib.SGE{{Addr: mr.Addr(), Length: 4096, LKey: mr.LKey()}}} // the GRH comes first
	return &p
}

// send sends one datagram, and waits until it is received.
func (p *pair) send(t *testing.T) {
	t.Helper()
	if _, err := p.to.PostRecv([]ib.RecvWR{p.recv}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.from.PostSend([]ib.SendWR{p.wr}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), require.Patience)
	defer cancel()
	if _, err := ib.WaitOne(ctx, p.cq); err != nil {
		t.Fatal(err)
	}
}

// began is a writer that tells when the capture has begun.
type began struct {
	bytes.Buffer
	once sync.Once
	ch   chan struct{}
}

func (b *began) Write(p []byte) (int, error) {
	b.once.Do(func() { close(b.ch) })
	return b.Buffer.Write(p)
}

// running is a capture of a client.
type running struct {
	file   began
	cancel context.CancelFunc
	done   chan struct{}
	result CaptureResult // after done
	err    error
}

func capture(t *testing.T, c *Client, o CaptureOptions) *running {
	t.Helper()
	r := &running{done: make(chan struct{})}
	r.file.ch = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	r.cancel = cancel
	t.Cleanup(cancel)
	go func() {
		defer close(r.done)
		r.result, r.err = c.Capture(ctx, &r.file, o)
	}()
	select {
	case <-r.file.ch:
	case <-r.done:
	}
	return r
}

// A capture over the socket holds what its filter selects, in a file that others read.
func TestCapture(t *testing.T) {
	d := serve(t)
	dev := d.open(t, "a")
	p, other := newPair(t, dev), newPair(t, dev)
	const n = 5
	all := capture(t, d.client, CaptureOptions{})
	sent := capture(t, d.client, CaptureOptions{Device: "a", QP: uint32(p.from.Num()), Packets: n})
	to := capture(t, d.client, CaptureOptions{QP: uint32(p.to.Num()), PeerQP: uint32(p.from.Num()), Packets: n})
	nobody := capture(t, d.client, CaptureOptions{Peer: "192.0.2.9"})
	for range n {
		p.send(t)
		other.send(t)
	}
	<-sent.done
	<-to.done
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
	<-all.done
	<-nobody.done
	for _, c := range []struct {
		name string
		r    *running
		want int
	}{{"all", all, 4 * n}, {"from a QP", sent, n}, {"to a QP", to, n}, {"nobody", nobody, 0}} {
		if c.r.err != nil || c.r.result != (CaptureResult{Packets: uint64(c.want)}) {
			t.Errorf("%s: %+v, %v; want %d packets", c.name, c.r.result, c.r.err, c.want)
		}
		path := filepath.Join(t.TempDir(), "x.pcapng")
		if err := os.WriteFile(path, c.r.file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		checkFile(t, c.r.file.Bytes(), c.want)
		t.Run(c.name, func(t *testing.T) { linktest.Tshark(t, path, c.want) })
	}
}

// checkFile reads a capture file of datagrams with gopacket.
func checkFile(t *testing.T, file []byte, want int) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for ; ; got++ {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		var f wire.Frame
		if err == nil {
			err = f.Decode(data)
		}
		if err != nil || wire.Opcode(f.Transport[0]) != wire.UDSendOnly || !f.Outer.Check(f.Transport) {
			t.Fatalf("packet %d: %x, %v; want a datagram with a right ICRC", got, data, err)
		}
	}
	if got != want {
		t.Errorf("%d packets, want %d", got, want)
	}
}

// Captures end with their clients; those who ask for too many are refused.
func TestCaptureLimit(t *testing.T) {
	d := serve(t)
	p := newPair(t, d.open(t, "a"))
	var list []*running
	for range wrap.MaxCaptures {
		list = append(list, capture(t, d.client, CaptureOptions{}))
	}
	tooMany := capture(t, d.client, CaptureOptions{})
	<-tooMany.done
	if !errors.Is(tooMany.err, ib.ErrLimit) || !strings.Contains(tooMany.err.Error(), "end one first") ||
		tooMany.file.Len() != 0 {
		t.Errorf("error %v, want %v, %q, and nothing written", tooMany.err, ib.ErrLimit, "end one first")
	}
	p.send(t)
	for _, r := range list {
		r.cancel()
		<-r.done
		if r.err != nil {
			t.Errorf("interrupted: %v", r.err)
		}
		checkFile(t, r.file.Bytes(), int(r.result.Packets)) // whole
	}
	for {
		again := capture(t, d.client, CaptureOptions{Packets: 1})
		select {
		case <-again.file.ch:
			p.send(t)
			<-again.done
			return
		case <-again.done:
		}
		if !errors.Is(again.err, ib.ErrLimit) { // else the daemon has not seen yet that they are gone
			t.Fatal(again.err)
		}
	}
}

func TestFaults(t *testing.T) {
	d := serve(t)
	p := newPair(t, d.open(t, "a"))
	ctx := t.Context()
	want := Fault{Device: "a", ID: 1, Action: "delay", Direction: "out", Opcode: "send", QP: uint32(p.from.Num()),
		PSN: "1-16777215", Delay: "1ms", Count: 2, Probability: 1, Seed: 7, TTL: "1h0m0s"}
	asked := want
	asked.Device, asked.ID, asked.Probability, asked.PSN = "", 0, 0, "1-0xFFFFFF"
	_, err := d.client.AddFault(ctx, asked)
	if !errors.Is(err, ib.ErrInvalid) || !strings.Contains(err.Error(), "half of all") {
		t.Errorf("a range that is too long: error %v, want %v and %q", err, ib.ErrInvalid, "half of all")
	}
	asked.PSN, want.PSN = "0-0xFF", "0-255"
	noLeft := cmpopts.IgnoreFields(Fault{}, "Left") // it gets less
	got, err := d.client.AddFault(ctx, asked)
	if left, err := time.ParseDuration(got.Left); err != nil || left <= 0 || left > time.Hour {
		t.Errorf("got %q left of a fault for an hour, want more than none, at most %v", got.Left, time.Hour)
	}
	if diff := cmp.Diff(want, got, noLeft); err != nil || diff != "" {
		t.Errorf("added (-want +got): %v %s", err, diff)
	}
	p.send(t)
	want.Matched, want.Hits = 1, 1
	list, err := d.client.Faults(ctx, "")
	if diff := cmp.Diff([]Fault{want}, list, noLeft); err != nil || diff != "" {
		t.Errorf("listed (-want +got): %v %s", err, diff)
	}
	for _, part := range []string{"a fault 1: delay by 1ms", "direction out", "opcode send", "count 2", "seed 7",
		"hit 1"} {
		if s := list[0].String(); !strings.Contains(s, part) {
			t.Errorf("%q, want it to say %q", s, part)
		}
	}
	if err := d.client.RemoveFault(ctx, "", 1); err != nil {
		t.Error(err)
	}
	for _, peer := range []string{"192.0.2.9", "2001:db8::9"} {
		if f, err := d.client.AddFault(ctx, Fault{Action: "drop", Peer: peer, PSN: "5"}); err != nil ||
			f.Peer != peer || f.PSN != "5" || f.Seed == 0 {
			t.Errorf("%+v, %v; want peer %v, PSN 5, and a seed", f, err, peer)
		}
	}
	if n, err := d.client.ClearFaults(ctx, "a"); n != 2 || err != nil {
		t.Errorf("cleared %d, %v; want 2", n, err)
	}
	if list, err := d.client.Faults(ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("%v are left, %v; want none", list, err)
	}
}

// What is wrong comes back with what is allowed.
func TestRefused(t *testing.T) {
	d := serve(t)
	d.open(t, "a")
	ctx := t.Context()
	add := func(f Fault) error { _, err := d.client.AddFault(ctx, f); return err }
	record := func(o CaptureOptions) error { _, err := d.client.Capture(ctx, io.Discard, o); return err }
	call := func(method, path string, in any) error { return d.client.call(ctx, method, path, in, nil) }
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{add(Fault{Action: "melt"}), 400, "drop, delay, duplicate, corrupt"},
		{add(Fault{Action: "drop", PSN: "x"}), 400, "70-90"},
		{add(Fault{Action: "drop", Peer: "x"}), 400, "an IP address"},
		{add(Fault{Action: "delay", Delay: "x"}), 400, "5ms"},
		{add(Fault{Action: "drop", TTL: "x"}), 400, "5ms"},
		{add(Fault{Action: "drop", QP: 1 << 24}), 400, "24 bits"},
		{add(Fault{Action: "drop", Device: "b"}), 404, "allowed: a"},
		{add(Fault{Action: strings.Repeat("x", 2*maxBody)}), 400, "too large"},
		{record(CaptureOptions{Device: "b"}), 404, "allowed: a"},
		{record(CaptureOptions{QP: 1 << 24}), 400, "24 bits"},
		{record(CaptureOptions{Peer: "x"}), 400, "an IP address"},
		{call("GET", "capture?color=red", nil), 400, "device, qp, peer_qp, peer"},
		{call("POST", "faults", map[string]string{"color": "red"}), 400, "color"},
		{call("DELETE", "faults?id=x", nil), 400, "a number"},
		{call("DELETE", "faults?id=9", nil), 404, "list them"},
		{call("GET", "nothing", nil), 404, "404 Not Found"},
	} {
		var e *Error
		if !errors.As(c.err, &e) || e.Status != c.status || !strings.Contains(e.Error(), c.want) ||
			!errors.Is(c.err, ib.ErrInvalid) {
			t.Errorf("error %v; want status %d that says %q", c.err, c.status, c.want)
		}
	}
}

// Who finds no daemon is told what to do.
func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, path := range []string{stale, filepath.Join(dir, "none")} {
		if _, err := NewClient(path).Faults(t.Context(), ""); err == nil ||
			!strings.Contains(err.Error(), "goroced serve") {
			t.Errorf("%s: error %v, want %q", path, err, "goroced serve")
		}
	}
	if os.Geteuid() == 0 {
		return // root may use every socket
	}
	d := serve(t)
	if err := os.Chmod(d.socket, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.client.Faults(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "may not connect") {
		t.Errorf("without rights: error %v, want %q", err, "may not connect")
	}
}

// TestSilent: a socket that accepts and does not answer, as that of systemd does while the service cannot start, ends
// the call.
func TestSilent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := NewClient(path)
	c.http.Transport.(*http.Transport).ResponseHeaderTimeout = time.Millisecond
	if _, err := c.Faults(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("error %v, want %q", err, "does not answer")
	}
}
