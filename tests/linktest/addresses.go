package linktest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Addresses tests AddLocal and RemoveLocal. spare is an address that the first link does not have, but may have.
func Addresses(t *testing.T, open Open, spare ib.GID) {
	for _, tt := range []struct {
		name string
		test func(t *testing.T, a, b link.Link, spare ib.GID)
	}{
		{"ComeAndGo", testComeAndGo}, {"Refused", testAddressRefused}, {"WhileWaiting", testAddressWhileWaiting},
		{"Closed", testAddressClosed},
	} {
		t.Run("Addresses/"+tt.name, func(t *testing.T) {
			a, b := open(t)
			t.Cleanup(func() { _, _ = a.Close(), b.Close() })
			tt.test(t, a, b, spare)
		})
	}
}

// change adds or removes an address.
func change(t *testing.T, f func(ib.GID) error, g ib.GID) {
	t.Helper()
	if err := f(g); err != nil {
		t.Fatal(err)
	}
}

// lost sends a run from an address that the link does not have, which must be counted as lost.
func lost(t *testing.T, l link.Link, r link.Run) {
	t.Helper()
	before := l.Stats().TxErrors
	SendAll(t, l, []link.Run{r})
	if n := l.Stats().TxErrors - before; n != uint64(r.Frames()) {
		t.Errorf("%d frames from %v were lost, want all %d", n, r.Src.Addr(), r.Frames())
	}
}

// await is Collect at the second link, for runs that the first link may hold until it knows the MAC address of a new
// destination.
func await(t *testing.T, from, to link.Link, n int) []link.Run {
	t.Helper()
	before := to.Stats().RxFrames
	in := make([]link.Run, 1)
	for end := time.Now().Add(patience); ; {
		if _, err := from.Recv(0, in); err != nil { // sends held runs
			t.Fatal(err)
		}
		_ = to.Wait(time.Millisecond, false)
		if k, err := to.Recv(0, in); err != nil {
			t.Fatal(err)
		} else if k > 0 {
			in[0].Buf = bytes.Clone(in[0].Buf)
			rest := n - int(to.Stats().RxFrames-before)
			return append(in, Collect(t, to, rest)...)
		}
		if time.Now().After(end) {
			t.Fatalf("nothing arrives; sender %+v, receiver %+v", from.Stats(), to.Stats())
		}
	}
}

// A link receives frames to an address, and sends from it, while it has the address. Its other addresses are not
// affected.
func testComeAndGo(t *testing.T, a, b link.Link, spare ib.GID) {
	var next uint32
	own := a.Caps().Local[0]
	for range 3 {
		before := a.Stats().RxFrames
		from := NewRun(a, b, &next, 1, 64, 0)
		from.Src = spare
		lost(t, a, from)

		change(t, a.AddLocal, spare)
		from = NewRun(a, b, &next, 3, 64, 0)
		from.Src = spare
		SendAll(t, a, []link.Run{from})
		got := Collect(t, b, 3)
		same(t, got, []link.Run{from})
		if got[0].Src != spare {
			t.Errorf("frames come from %v, want %v", got[0].Src.Addr(), spare.Addr())
		}
		to := NewRun(b, a, &next, 2, 64, 0)
		to.Dst = spare
		SendAll(t, b, []link.Run{to})
		got = await(t, b, a, 2)
		same(t, got, []link.Run{to})
		if got[0].Dst != spare {
			t.Errorf("frames came to %v, want %v", got[0].Dst.Addr(), spare.Addr())
		}

		change(t, a.RemoveLocal, spare)
		to = NewRun(b, a, &next, 1, 64, 0)
		to.Dst = spare
		SendAll(t, b, []link.Run{to})
		last := NewRun(b, a, &next, 1, 64, 0) // would arrive after the lost one
		SendAll(t, b, []link.Run{last})
		got = Collect(t, a, 1)
		same(t, got, []link.Run{last})
		if got[0].Dst != own {
			t.Errorf("a frame came to %v, which was removed", got[0].Dst.Addr())
		}
		if n := a.Stats().RxFrames - before; n != 3 {
			t.Errorf("%d frames arrived, want 3: 2 while the link had the address, and 1 to the other", n)
		}
	}
}

// Invalid calls are refused and change nothing.
func testAddressRefused(t *testing.T, a, b link.Link, spare ib.GID) {
	own := a.Caps().Local[0]
	for _, tt := range []struct {
		what string
		f    func(ib.GID) error
		gid  ib.GID
	}{
		{"add one's own", a.AddLocal, own},
		{"add a group", a.AddLocal, NewGroup(a)},
		{"add nothing", a.AddLocal, ib.GID{}},
		{"remove another", a.RemoveLocal, spare},
		{"remove a group", a.RemoveLocal, NewGroup(a)},
	} {
		var refused *ib.AttrError
		if err := tt.f(tt.gid); !errors.As(err, &refused) || !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("%s: %v, want an *ib.AttrError that wraps ErrInvalid", tt.what, err)
		}
	}
	var next uint32
	r := NewRun(b, a, &next, 1, 64, 0)
	SendAll(t, b, []link.Run{r})
	same(t, Collect(t, a, 1), []link.Run{r})
}

// Frames to an address end a Wait that began before the address was added.
func testAddressWhileWaiting(t *testing.T, a, b link.Link, spare ib.GID) {
	var next uint32
	r := NewRun(b, a, &next, 1, 64, 0)
	r.Dst = spare
	got := make(chan int, 1)
	ended := make(chan error, 1)
	go func() {
		in := make([]link.Run, 1)
		for {
			if err := a.Wait(-1, false); err != nil {
				ended <- err
				return
			}
			if n, err := a.Recv(0, in); err == nil && n > 0 {
				got <- n
			}
		}
	}()
	change(t, a.AddLocal, spare)
	SendAll(t, b, []link.Run{r})
	in := make([]link.Run, 1)
	for late, arrived := time.After(patience), false; !arrived; {
		_, _ = b.Recv(0, in) // sends runs that wait for a MAC address
		select {
		case <-got:
			arrived = true
		case err := <-ended:
			t.Fatal(err)
		case <-late:
			t.Fatal("the frame does not end Wait")
		case <-time.After(time.Millisecond):
		}
	}
	change(t, a.RemoveLocal, spare)
	_ = a.Close()
	if err := <-ended; !errors.Is(err, link.ErrClosed) {
		t.Errorf("Wait: %v, want ErrClosed", err)
	}
}

func testAddressClosed(t *testing.T, a, _ link.Link, spare ib.GID) {
	change(t, a.AddLocal, spare)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"AddLocal": a.AddLocal(spare), "RemoveLocal": a.RemoveLocal(spare)} {
		if !errors.Is(err, link.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", what, err)
		}
	}
}
