package linktest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Open returns two links that can reach one another, each by its first address. They are closed when the test ends.
type Open func(t testing.TB) (a, b link.Link)

// contractTest is a part of the contract.
type contractTest struct {
	name string
	test func(t *testing.T, a, b link.Link)
}

var unicast = []contractTest{
	{"Caps", testCaps},
	{"Header", testHeader},
	{"Order", testOrder},
	{"LargestRun", testLargestRun},
	{"ShortRecv", testShortRecv},
	{"BadRuns", testBadRuns},
	{"Keep", testKeep},
	{"Wait", testWait},
	{"Wake", testWake},
	{"Close", testClose},
	{"NoAllocation", testNoAllocation},
}

// Run tests the contract of link.Link on pairs that open makes.
func Run(t *testing.T, open Open) {
	for _, tt := range slices.Concat(unicast, multicast) {
		t.Run(tt.name, func(t *testing.T) {
			a, b := open(t)
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			tt.test(t, a, b)
		})
	}
}

// patience limits every wait for something that must come.
const patience = time.Minute

// NewRun returns a run from a to b of n frames of size bytes and, if tail is not 0, one more of tail bytes. The frames
// are packets of a SEND with the PSNs from next on: the middle of a message, or its end if there is a tail. Their ECN
// bits are CE, which a link must carry like the others. Seal writes the ICRCs.
func NewRun(a, b link.Link, next *uint32, n, size, tail int) link.Run {
	r := link.Run{
		Src: a.Caps().Local[0], Dst: b.Caps().Local[0],
		SrcPort: 0xC123, TrafficClass: 0x68 | uint8(wire.CE), HopLimit: 33,
		Size: size, Buf: make([]byte, n*size+tail),
	}
	for i := range r.Buf {
		r.Buf[i] = byte(i * 7)
	}
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendMiddle, PKey: ib.DefaultPKey, DestQP: 0x11}}
	for i := range r.Frames() {
		if i == n {
			p.Opcode = wire.RCSendLast
		}
		p.PSN = ib.PSN(*next) & ib.PSNMask
		p.PutHeaders(r.Frame(i))
		*next++
	}
	return r
}

// SendAll sends the runs, and waits for room if necessary.
func SendAll(t testing.TB, l link.Link, runs []link.Run) {
	t.Helper()
	for end := time.Now().Add(patience); len(runs) > 0; {
		n, err := l.Send(0, runs)
		if err != nil {
			t.Fatalf("Send: %v", err)
		}
		runs = runs[n:]
		if time.Now().After(end) {
			t.Fatalf("Send does not take %d runs", len(runs))
		}
		if len(runs) > 0 {
			if err := l.Wait(patience, true); err != nil {
				t.Fatalf("Wait: %v", err)
			}
		}
	}
}

// Collect receives n frames and returns copies of the runs that hold them.
func Collect(t testing.TB, l link.Link, n int) []link.Run {
	t.Helper()
	var got []link.Run
	in := make([]link.Run, 16)
	for end := time.Now().Add(patience); n > 0; {
		k, err := l.Recv(0, in)
		if err != nil {
			t.Fatalf("Recv: %v", err)
		}
		for _, r := range in[:k] {
			r.Buf = bytes.Clone(r.Buf)
			got = append(got, r)
			n -= r.Frames()
		}
		if k > 0 || n <= 0 {
			continue
		}
		if err := l.Wait(time.Until(end), false); err != nil {
			t.Fatalf("Wait: %v", err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames did not arrive; stats %+v", n, l.Stats())
		}
	}
	return got
}

// receive receives frames without looking at them, and allocates nothing.
func receive(t testing.TB, l link.Link, want int, in []link.Run) {
	for got, end := 0, time.Now().Add(patience); got < want; {
		if time.Now().After(end) {
			t.Fatalf("%d frames arrived, want %d", got, want)
		}
		n, err := l.Recv(0, in)
		if err != nil {
			t.Fatal(err)
		}
		for i := range in[:n] {
			got += in[i].Frames()
		}
		if got < want {
			if err := l.Wait(patience, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Frames returns the frames of runs, in order.
func Frames(runs ...link.Run) [][]byte {
	var frames [][]byte
	for i := range runs {
		for j := range runs[i].Frames() {
			frames = append(frames, runs[i].Frame(j))
		}
	}
	return frames
}

// same fails unless the frames of got are those of want, in order.
func same(t testing.TB, got, want []link.Run) {
	t.Helper()
	g, w := Frames(got...), Frames(want...)
	if len(g) != len(w) {
		t.Fatalf("%d frames arrived, want %d", len(g), len(w))
	}
	for i := range w {
		// Compare up to the ICRC, which a wrapper may have written.
		if len(g[i]) != len(w[i]) || !bytes.Equal(g[i][:len(g[i])-4], w[i][:len(w[i])-4]) {
			t.Fatalf("frame %d is %d bytes %.16x, want %d bytes %.16x", i, len(g[i]), g[i], len(w[i]), w[i])
		}
	}
}

// largest returns the longest frame that a can send to b.
func largest(a, b link.Link) int {
	overhead := 48
	if b.Caps().Local[0].Addr().Is4() {
		overhead = 28
	}
	c := a.Caps()
	return min(c.MTU-overhead, c.RunBytes) &^ 3
}

func testCaps(t *testing.T, a, _ link.Link) {
	c := a.Caps()
	if c.Name == "" || len(c.Local) == 0 || c.MTU < 336 || c.RunFrames < 1 || c.RunBytes < c.MTU-48 &&
		c.RunBytes < 65000 {
		t.Errorf("capabilities make no sense: %+v", c)
	}
	if d := a.Deadline(); d != driver.Never {
		t.Errorf("Deadline of an idle link is %d, want Never", d)
	}
}

func testHeader(t *testing.T, a, b link.Link) {
	var next uint32
	want := NewRun(a, b, &next, 1, 64, 0)
	SendAll(t, a, []link.Run{want})
	got := Collect(t, b, 1)
	same(t, got, []link.Run{want})
	r := got[0]
	if r.Src != want.Src || r.Dst != want.Dst {
		t.Errorf("from %v to %v, want from %v to %v", r.Src, r.Dst, want.Src, want.Dst)
	}
	port := want.SrcPort
	if p := a.Caps().FixedSrcPort; p != 0 {
		port = p
	}
	if r.SrcPort != port || r.TrafficClass != want.TrafficClass || r.HopLimit != want.HopLimit {
		t.Errorf("source port %d, traffic class %#x, hop limit %d; want %d, %#x, %d",
			r.SrcPort, r.TrafficClass, r.HopLimit, port, want.TrafficClass, want.HopLimit)
	}
}

// Runs of all shapes, in batches, arrive completely and in order.
func testOrder(t *testing.T, a, b link.Link) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	most := min(largest(a, b), 4128)
	var next uint32
	var frames, bytes uint64
	for range 50 {
		var out []link.Run
		for range 1 + rng.IntN(6) {
			size := 16 + 4*rng.IntN((most-16)/4+1)
			n := 1 + rng.IntN(min(a.Caps().RunFrames, 20000/size+1))
			tail := 0
			if size > 20 && n < a.Caps().RunFrames && rng.IntN(2) == 0 {
				tail = 16 + 4*rng.IntN((size-16)/4)
			}
			out = append(out, NewRun(a, b, &next, n, size, tail))
		}
		for i := range out {
			frames += uint64(out[i].Frames())
			bytes += uint64(len(out[i].Buf))
		}
		SendAll(t, a, out)
		same(t, Collect(t, b, len(Frames(out...))), out)
	}
	tx, rx := a.Stats(), b.Stats()
	if tx.TxFrames != frames || tx.TxBytes != bytes || tx.TxErrors != 0 {
		t.Errorf("sender counts %+v, want %d frames, %d bytes", tx, frames, bytes)
	}
	if rx.RxFrames != frames || rx.RxBytes != bytes || rx.RxDropped+rx.RxOverflow != 0 {
		t.Errorf("receiver counts %+v, want %d frames, %d bytes", rx, frames, bytes)
	}
	if tx.TxRuns == 0 || rx.RxRuns == 0 || tx.TxRuns > tx.TxFrames || rx.RxRuns > rx.RxFrames {
		t.Errorf("runs make no sense: sent %+v, received %+v", tx, rx)
	}
}

func testLargestRun(t *testing.T, a, b link.Link) {
	c := a.Caps()
	var next uint32
	long := largest(a, b)
	for _, out := range []link.Run{
		NewRun(a, b, &next, c.RunFrames, 16, 0),
		NewRun(a, b, &next, 1, long, 0),
		NewRun(a, b, &next, min(c.RunFrames, c.RunBytes/long), long, 0),
		NewRun(a, b, &next, min(c.RunFrames, c.RunBytes/1040), 1040, 0),
	} {
		SendAll(t, a, []link.Run{out})
		same(t, Collect(t, b, out.Frames()), []link.Run{out})
	}
}

// Recv returns no more runs than there is room for, and keeps the rest.
func testShortRecv(t *testing.T, a, b link.Link) {
	var next uint32
	var out []link.Run
	for range 5 {
		out = append(out, NewRun(a, b, &next, 1, 32, 0))
	}
	SendAll(t, a, out)
	var got []link.Run
	in := make([]link.Run, 1)
	for end := time.Now().Add(patience); len(Frames(got...)) < 5; {
		if time.Now().After(end) {
			t.Fatalf("%d frames arrived, want 5", len(Frames(got...)))
		}
		n, err := b.Recv(0, in)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			_ = b.Wait(time.Second, false)
			continue
		}
		in[0].Buf = bytes.Clone(in[0].Buf)
		got = append(got, in[0])
	}
	same(t, got, out)
}

// Runs that were kept do not change while others arrive.
func testKeep(t *testing.T, a, b link.Link) {
	if !b.Caps().Keeps {
		b.Keep() // does nothing
		t.Skip("skipped: needs a link that gives its buffers away (link.Caps.Keeps), as rawsock does")
	}
	var next uint32
	out := make([]link.Run, 3)
	for i := range out {
		out[i] = NewRun(a, b, &next, 1, 1040, 0)
	}
	Keep(t, b, func() { SendAll(t, a, out) }, len(out))
}

// Keep keeps what l receives after each of some calls of send, which makes at least least frames arrive, and fails if
// any of it changes.
func Keep(t testing.TB, l link.Link, send func(), least int) {
	var kept, want [][]byte
	in := make([]link.Run, 4)
	for round := range byte(15) {
		send()
		for got, end := 0, time.Now().Add(patience); got < least; {
			n, err := l.Recv(0, in)
			if err != nil {
				t.Fatal(err)
			}
			for i := range in[:n] {
				got += in[i].Frames()
				for j := range in[i].Buf {
					in[i].Buf[j] = round
				}
				kept, want = append(kept, in[i].Buf), append(want, bytes.Clone(in[i].Buf))
			}
			if round%3 < 2 { // and of some rounds nothing
				l.Keep()
			} else {
				kept, want = kept[:len(kept)-n], want[:len(want)-n]
			}
			if time.Now().After(end) {
				t.Fatalf("%d frames arrived, want %d", got, least)
			}
			if got < least {
				_ = l.Wait(time.Millisecond, false)
			}
		}
	}
	for i := range kept {
		if !bytes.Equal(kept[i], want[i]) {
			t.Errorf("kept run %d of %d has changed", i, len(kept))
		}
	}
}

// Runs that cannot be sent are counted; those before and after them arrive.
func testBadRuns(t *testing.T, a, b link.Link) {
	var next uint32
	c := a.Caps()
	first := NewRun(a, b, &next, 1, 64, 0)
	last := NewRun(a, b, &next, 1, 64, 0)
	bad := func(change func(*link.Run)) link.Run {
		var n uint32
		r := NewRun(a, b, &n, 1, 64, 0)
		change(&r)
		return r
	}
	out := []link.Run{
		first,
		bad(func(r *link.Run) { r.Buf = nil }),
		bad(func(r *link.Run) { r.Size = 0 }),
		bad(func(r *link.Run) { r.Size = -4 }),
		bad(func(r *link.Run) { r.Buf = r.Buf[:63] }),
		bad(func(r *link.Run) { r.Buf = r.Buf[:3] }),
		bad(func(r *link.Run) { r.Size = 1 }),
		bad(func(r *link.Run) { r.Size, r.Buf = 1<<62, make([]byte, c.MTU) }),
		bad(func(r *link.Run) { r.Size, r.Buf = c.MTU, make([]byte, 2*c.MTU) }),
		bad(func(r *link.Run) { r.Size, r.Buf = 16, make([]byte, 16*(c.RunFrames+1)) }),
		bad(func(r *link.Run) { r.Size, r.Buf = 256, make([]byte, 1<<17) }),
		bad(func(r *link.Run) { r.Dst = otherVersion(r.Dst) }),
		last,
	}
	SendAll(t, a, out)
	same(t, Collect(t, b, 2), []link.Run{first, last})
	s := a.Stats()
	if s.TxErrors < uint64(len(out)-2) || s.LastError == "" || s.TxFrames != 2 {
		t.Errorf("stats %+v, want 2 frames sent, at least %d lost, and the reason", s, len(out)-2)
	}
}

func otherVersion(g ib.GID) ib.GID {
	if g.Is4() {
		return ib.GID{0: 0xFD, 15: 9}
	}
	return ib.GID{10: 0xFF, 11: 0xFF, 12: 127, 15: 1}
}

func testWait(t *testing.T, a, b link.Link) {
	start := time.Now()
	if err := b.Wait(20*time.Millisecond, false); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 15*time.Millisecond {
		t.Errorf("Wait for 20ms on an idle link took %v", d)
	}
	if err := b.Wait(0, false); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(-1, true); err != nil { // returns, because an idle link is writable
		t.Fatal(err)
	}
	var next uint32
	out := []link.Run{NewRun(a, b, &next, 1, 64, 0)}
	sent := make(chan error, 1)
	go func() { _, err := a.Send(0, out); sent <- err }()
	if err := b.Wait(-1, false); err != nil {
		t.Fatal(err)
	}
	Collect(t, b, 1)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func testWake(t *testing.T, _, b link.Link) {
	b.Wake()
	b.Wake()
	if err := b.Wait(-1, false); err != nil { // the earlier Wake counts
		t.Fatal(err)
	}
	var wakers sync.WaitGroup
	for range 200 {
		wakers.Add(1)
		go func() { defer wakers.Done(); b.Wake() }()
		if err := b.Wait(-1, false); err != nil {
			t.Fatal(err)
		}
		wakers.Wait()
		// The Wake may have come after another one has ended that Wait.
		if err := b.Wait(0, false); err != nil {
			t.Fatal(err)
		}
	}
}

func testClose(t *testing.T, a, b link.Link) {
	// One goroutine calls Wait again and again. Close ends a Wait that is running, or the next one, and that Wait does
	// not return nil.
	woken, ended := make(chan struct{}), make(chan error)
	go func() {
		for {
			if err := b.Wait(-1, false); err != nil {
				ended <- err
				return
			}
			woken <- struct{}{}
		}
	}()
	for range 10 { // so that it is most likely running
		b.Wake()
		<-woken
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, link.ErrClosed) {
			t.Errorf("Wait: %v, want ErrClosed", err)
		}
	case <-woken:
		t.Error("Wait ends without an error when the link is closed")
		<-ended
	case <-time.After(patience):
		t.Fatal("Close does not end Wait")
	}
	var next uint32
	out := []link.Run{NewRun(b, a, &next, 1, 64, 0)}
	if n, err := b.Send(0, out); n != 0 || !errors.Is(err, link.ErrClosed) {
		t.Errorf("Send after Close: %d, %v; want 0, ErrClosed", n, err)
	}
	if n, err := b.Recv(0, out); n != 0 || !errors.Is(err, link.ErrClosed) {
		t.Errorf("Recv after Close: %d, %v; want 0, ErrClosed", n, err)
	}
	if err := b.Wait(-1, true); !errors.Is(err, link.ErrClosed) {
		t.Errorf("Wait after Close: %v, want ErrClosed", err)
	}
	b.Wake()
	if err := b.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// Sending and receiving a run, in the steady state, does not allocate.
func testNoAllocation(t *testing.T, a, b link.Link) {
	var next uint32
	out := []link.Run{NewRun(a, b, &next, min(a.Caps().RunFrames, 8), 1040, 0), NewRun(a, b, &next, 1, 32, 0)}
	want := len(Frames(out...))
	in := make([]link.Run, 16)
	step := func() {
		if n, err := a.Send(0, out); n != len(out) || err != nil {
			t.Fatalf("Send: %d, %v", n, err)
		}
		receive(t, b, want, in)
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations for %d runs sent and received, want 0", n, len(out))
	}
}
