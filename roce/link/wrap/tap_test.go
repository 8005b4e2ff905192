package wrap_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/gopacket/pcapgo"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/wire"
)

// recorded is the contents of a capture file.
type recorded struct {
	sent, received []int // PSNs
	matched, lost  uint64
}

// read reads a capture file, in which all ICRCs must be correct.
func read(t *testing.T, file io.Reader) (got recorded) {
	t.Helper()
	r, err := pcapgo.NewNgReader(file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var f wire.Frame
		if err := f.Decode(data); err != nil || !f.Outer.Check(f.Transport) {
			t.Fatalf("packet %v: %v, or its ICRC is wrong", data, err)
		}
		psn := int(f.Transport[10])<<8 | int(f.Transport[11])
		if itf, _ := r.Interface(ci.InterfaceIndex); itf.Name == "rec sent" || itf.Name == "mem sent" {
			got.sent = append(got.sent, psn)
		} else {
			got.received = append(got.received, psn)
		}
	}
	for i := range r.NInterfaces() {
		itf, _ := r.Interface(i)
		got.matched += itf.Statistics.PacketsReceived
		got.lost += itf.Statistics.PacketsDropped
	}
	return got
}

func attach(t *testing.T, tap *wrap.Tap, w io.Writer, m wrap.Match) *wrap.Capture {
	t.Helper()
	c, err := tap.Attach(w, m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func closeCapture(t *testing.T, c *wrap.Capture) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Captures see what passes between their beginning and their end, and what their filters select.
func TestTap(t *testing.T) {
	var tap wrap.Tap
	rec := newRecorder()
	l := wrap.Seal(tap.Around(rec))
	send(t, l, 1, newRun(0, 1, 64, 0))
	var all, qp, none bytes.Buffer
	a := attach(t, &tap, &all, wrap.Match{})
	q := attach(t, &tap, &qp, wrap.Match{QPN: 0x11})
	n := attach(t, &tap, &none, wrap.Match{Peer: local})
	send(t, l, 2, newRun(1, 2, 64, 0), ack(7, 0x99))
	answer := newRecorder()
	send(t, wrap.Seal(answer), 0, newRun(10, 2, 64, 32))
	rec.rx = answer.sent
	rec.rx[0].Src, rec.rx[0].Dst = local, peer // as sealed
	if _, err := l.Recv(3, make([]link.Run, 4)); err != nil {
		t.Fatal(err)
	}
	closeCapture(t, q)
	send(t, l, 4, newRun(20, 1, 64, 0))
	closeCapture(t, a)
	closeCapture(t, n)
	send(t, l, 5, newRun(30, 1, 64, 0))

	for _, c := range []struct {
		name string
		file *bytes.Buffer
		want recorded
	}{
		{"all", &all, recorded{[]int{1, 2, 7, 20}, []int{10, 11, 12}, 7, 0}},
		{"QP", &qp, recorded{nil, []int{10, 11, 12}, 3, 0}},
		{"from a host", &none, recorded{nil, []int{10, 11, 12}, 3, 0}},
	} {
		path := filepath.Join(t.TempDir(), "x.pcapng")
		if err := os.WriteFile(path, c.file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := read(t, c.file); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		t.Run(c.name, func(t *testing.T) { linktest.Tshark(t, path, len(c.want.sent)+len(c.want.received)) })
	}
}

// gate is a writer that passes the start of the file and blocks the rest until it is opened.
type gate struct {
	bytes.Buffer
	began bool
	open  chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	if g.began {
		<-g.open
	}
	g.began = true
	return g.Buffer.Write(p)
}

// If a writer blocks, its frames are dropped and counted. The link does not wait, and other captures get everything.
func TestTapSlowWriter(t *testing.T) {
	const runs, each, size = 200, 60, 1040 // 12 MB, thrice what may wait
	var tap wrap.Tap
	l := wrap.Seal(tap.Around(newDiscard()))
	slow := &gate{open: make(chan struct{})}
	c := attach(t, &tap, slow, wrap.Match{})
	for range runs {
		send(t, l, 0, newRun(0, each, size, 0))
	}
	if n := c.Counts(); n.Matched != runs*each || n.Dropped < runs*each/4 {
		t.Errorf("counts %+v, want %d matched, at least %d dropped", n, runs*each, runs*each/4)
	}
	close(slow.open)
	closeCapture(t, c)
	got := read(t, &slow.Buffer)
	if got.matched != runs*each || got.lost != c.Counts().Dropped || len(got.sent) != int(got.matched-got.lost) {
		t.Errorf("%d packets in the file, want %d; it says that %d matched, want %d, and %d were lost; counts %+v",
			len(got.sent), got.matched-got.lost, got.matched, runs*each, got.lost, c.Counts())
	}
}

// discard is a Link that accepts everything and keeps nothing.
type discard struct{ *recorder }

func newDiscard() discard { return discard{newRecorder()} }

func (discard) Send(_ ib.Instant, out []link.Run) (int, error) { return len(out), nil }

// Captures begin and end while several links run, and end with the links.
func TestTapUnderTraffic(t *testing.T) {
	const links = 3
	var tap wrap.Tap
	var traffic, change sync.WaitGroup
	stop := make(chan struct{})
	var stacks []link.Link
	for range links {
		stacks = append(stacks, wrap.Seal(tap.Around(newDiscard())))
	}
	var whole bytes.Buffer
	all := attach(t, &tap, &whole, wrap.Match{})
	for _, l := range stacks {
		traffic.Go(func() {
			for range 200 {
				send(t, l, 0, newRun(0, 2, 64, 0))
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	change.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := tap.Attach(io.Discard, wrap.Match{})
			if errors.Is(err, ib.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			c.Counts()
			closeCapture(t, c)
		}
	})
	traffic.Wait()
	<-all.Done()
	close(stop)
	change.Wait()
	closeCapture(t, all)
	if got := read(t, &whole); len(got.sent) != links*400 || got.matched != links*400 {
		t.Errorf("%d packets, %d matched, want %d", len(got.sent), got.matched, links*400)
	}
	if _, err := tap.Attach(io.Discard, wrap.Match{}); !tap.Closed() || !errors.Is(err, ib.ErrClosed) {
		t.Errorf("closed: %v; error %v, want %v", tap.Closed(), err, ib.ErrClosed)
	}
}

func TestTapErrors(t *testing.T) {
	var tap wrap.Tap
	l := tap.Around(newDiscard())
	if _, err := tap.Attach(&fullDisk{}, wrap.Match{}); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
	c := attach(t, &tap, &fullDisk{room: 300}, wrap.Match{})
	send(t, l, 0, newRun(0, 60, 1040, 0))
	<-c.Done()
	if err := c.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v, want %v", err, errFull)
	}
	if _, err := tap.Attach(io.Discard, wrap.Match{QPN: 1 << 24}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("error %v, want %v", err, ib.ErrInvalid)
	}
	var list []*wrap.Capture
	for range wrap.MaxCaptures {
		list = append(list, attach(t, &tap, io.Discard, wrap.Match{}))
	}
	var none bytes.Buffer
	if _, err := tap.Attach(&none, wrap.Match{}); !errors.Is(err, ib.ErrLimit) || none.Len() != 0 {
		t.Errorf("error %v, want %v and nothing written (%d bytes)", err, ib.ErrLimit, none.Len())
	}
	for _, c := range list {
		closeCapture(t, c)
	}
}

// The cost of a call with an unused Tap and unused Rules, compared with the bare links.
func BenchmarkIdle(b *testing.B) {
	for _, with := range []bool{false, true} {
		n := mem.NewNetwork()
		var l link.Link = n.Open([]ib.GID{local}, mem.Options{})
		if with {
			tap, rules := new(wrap.Tap), new(wrap.Rules)
			l = rules.Above(rules.Below(tap.Around(l)))
		}
		in := make([]link.Run, 4)
		out := []link.Run{newRun(0, 1, 64, 0)}
		out[0].Dst = local
		b.Run(fmt.Sprintf("tap=%v", with), func(b *testing.B) {
			for range b.N {
				if _, err := l.Send(0, out); err != nil {
					b.Fatal(err)
				}
				if n, err := l.Recv(0, in); n != 1 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
