//go:build rnic && cgo

package rnic

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/goroce/goroce/ib"
)

// TestRegions checks that a region has the given IOVA, or the address of its memory, and
// that rights which the device lacks are refused.
func TestRegions(t *testing.T) {
	r := openRig(t)
	buf := pages(2)[:5000]
	first := try(r.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite}))(r)
	twice := try(r.pd.RegMR(ib.MRInit{Buf: buf, IOVA: 0x10000, Access: allRights}))(r)
	zero := try(r.pd.RegMR(ib.MRInit{Buf: buf, Access: allRights | ib.ZeroBased}))(r)
	if first.Len() != 5000 || twice.Addr() != 0x10000 || zero.Addr() != 0 || first.LKey() == twice.LKey() {
		t.Errorf("length %d, addresses %#x and %#x, keys %#x and %#x; want 5000, 0x10000, 0, and two keys", first.Len(),
			twice.Addr(), zero.Addr(), first.LKey(), twice.LKey())
	}
	a, _ := r.newPair(ib.RC)
	src, from := r.register(64)
	copy(from, "to an address of its own")
	for _, m := range []ib.MR{twice, zero} {
		clear(buf)
		r.send(a, ib.SendWR{ID: 1, Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: []ib.SGE{sge(src, 0, 24)},
			RemoteAddr: m.Addr() + 100, RKey: m.RKey()})
		if r.want(1, ib.WCWrite); !bytes.Equal(buf[100:124], from[:24]) {
			t.Errorf("written to %#x: %q, want %q", m.Addr(), buf[100:124], from[:24])
		}
	}
	for _, c := range []struct {
		init ib.MRInit
		want error
	}{
		{ib.MRInit{Buf: buf, Access: ib.RemoteWrite}, ib.ErrInvalid},
		{ib.MRInit{Buf: buf, Access: 1 << 30}, ib.ErrInvalid},
		{ib.MRInit{Buf: buf, IOVA: 8, Access: ib.ZeroBased}, ib.ErrInvalid},
		{ib.MRInit{Buf: buf[8:], Access: ib.ZeroBased}, ib.ErrInvalid},
		{ib.MRInit{Buf: buf, IOVA: 8, Access: ib.LocalWrite}, ib.ErrInvalid},
		{ib.MRInit{Buf: buf, Access: ib.RemoteInvalidate}, ib.ErrNotSupported},
	} {
		if _, err := r.pd.RegMR(c.init); !errors.Is(err, c.want) {
			t.Errorf("rights %#x at %#x: %v, want %v", c.init.Access, c.init.IOVA, err, c.want)
		}
	}
	hinted := try(r.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.OptionalAccess}))(r)
	r.must(hinted.Close())
	if _, err := r.pd.RegMR(ib.MRInit{Access: ib.LocalWrite}); err != nil {
		t.Logf("a region of no bytes: %v", err)
	}
	_, err := r.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite | ib.FlushGlobal})
	if has := r.Attr().Caps&ib.CapFlushGlobal != 0; has != (err == nil) {
		t.Errorf("the right to FLUSH, capability %v: %v, want it given: %v", has, err, has)
	}
}

// pages returns n pages of memory, aligned to a page.
func pages(n int) []byte {
	size := os.Getpagesize()
	buf := make([]byte, (n+1)*size)
	skip := -int(uintptr(unsafe.Pointer(&buf[0]))) & (size - 1)
	return buf[skip:][:n*size]
}

// TestKeysAfterClose checks that getters of a closed region do not read the freed struct of the library. The next
// regions get its memory here: the test stays on one thread, whose freed memory malloc gives out first.
func TestKeysAfterClose(t *testing.T) {
	r := openRig(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var regions [32]ib.MR
	var keys [len(regions)][2]ib.Key
	for i := range regions {
		regions[i], _ = r.register(8)
		keys[i] = [2]ib.Key{regions[i].LKey(), regions[i].RKey()}
	}
	for _, m := range regions {
		r.must(m.Close())
	}
	for range regions {
		r.register(8)
	}
	for i, m := range regions {
		if got := [2]ib.Key{m.LKey(), m.RKey()}; got != keys[i] {
			t.Errorf("the keys of closed region %d are %#x, want %#x", i, got, keys[i])
		}
	}
}

// TestRereg checks that Rereg changes a region, or is refused if the provider lacks it.
func TestRereg(t *testing.T) {
	r := openRig(t)
	m, _ := r.register(4096)
	other := try(r.AllocPD())(r)
	key := m.LKey()
	for _, mask := range []ib.ReregMask{ib.ReregTranslation, ib.ReregPD, ib.ReregAccess} {
		err := m.Rereg(mask, other, ib.MRInit{Buf: make([]byte, 8192), Access: ib.LocalWrite})
		if err != nil && !errors.Is(err, ib.ErrNotSupported) {
			t.Errorf("mask %d: %v, want none or %v", mask, err, ib.ErrNotSupported)
		}
		t.Logf("mask %d: %v", mask, err)
		if mask == ib.ReregTranslation && (err == nil) != (r.Attr().Caps&ib.CapRereg != 0) {
			t.Errorf("capability %#x, but %v, want no error with it only", r.Attr().Caps, err)
		}
		if err != nil && (m.LKey() != key || m.Len() != 4096) {
			t.Errorf("a refused change left key %#x, length %d, want %#x, 4096", m.LKey(), m.Len(), key)
		}
	}
	if err := m.Rereg(0, nil, ib.MRInit{}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("nothing to change: %v, want %v", err, ib.ErrInvalid)
	}
	if err := m.Rereg(ib.ReregPD, nil, ib.MRInit{}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("to no protection domain: %v, want %v", err, ib.ErrInvalid)
	}
	r.must(m.Close())
	r.must(other.Close())
}

// TestReregOutcome checks what each result of rnic_rereg_mr makes of a region: its length, whether requests find it,
// and whether the new memory stays pinned. It needs no device: librxe has no ibv_rereg_mr that could fail so.
func TestReregOutcome(t *testing.T) {
	for _, c := range []struct {
		ret, length  int
		found, holds bool
	}{
		{0, 8192, true, true},
		{int(syscall.ENOMEM), 4096, true, false},
		{-int(syscall.ENOMEM), 4096, false, true},
	} {
		domain, old, buf := &pd{}, make([]byte, 4096), make([]byte, 8192)
		m := &mr{pd: domain, pin: pinned(old), buf: old}
		m.dev, m.uses = &device{}, []*object{&domain.object}
		m.c = newOf(m.c)
		m.c.lkey = 7
		memory := weak.Make(&buf[0])
		m.settle(c.ret, &mr{pd: domain, pin: pinned(buf), buf: buf})
		if length, found := m.Len(), m.dev.refs.mrs[7] == m; length != c.length || found != c.found {
			t.Errorf("after %d: %d bytes, found by requests: %v; want %d, %v", c.ret, length, found, c.length, c.found)
		}
		m.buf, buf = nil, nil // from here on only a pin holds the memory
		runtime.GC()
		if holds := memory.Value() != nil; holds != c.holds {
			t.Errorf("after %d: the new memory is pinned: %v, want %v", c.ret, holds, c.holds)
		}
		m.pin.Unpin()
		if m.lost == nil {
			continue
		}
		m.lost.Unpin()
		if err := m.Rereg(ib.ReregAccess, nil, ib.MRInit{}); !errors.Is(err, ib.ErrState) {
			t.Errorf("after %d: changed again: %v, want %v", c.ret, err, ib.ErrState)
		}
	}
}

// newOf returns a new T, which a test cannot name if it is of C.
func newOf[T any](*T) *T { return new(T) }

// window is a scene with a window on the middle of a region.
type window struct {
	*rig
	a, b     ib.QP // b binds
	src, dst ib.MR
	from, to []byte
}

func newWindow(t *testing.T) *window {
	r := openRig(t)
	w := &window{rig: r}
	w.a, w.b = r.newPair(ib.RC)
	w.src, w.from = r.register(64)
	w.dst, w.to = r.register(4096)
	copy(w.from, "through the window")
	return w
}

// write writes through the window's key and returns the status.
func (w *window) write(addr uint64, key ib.Key) ib.WCStatus {
	w.Helper()
	w.send(w.a, ib.SendWR{ID: 5, Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: []ib.SGE{sge(w.src, 0, 18)},
		RemoteAddr: addr, RKey: key})
	wc := w.next(w.cq)
	if wc.ID != 5 {
		w.Fatalf("completion %+v, want that of the WRITE", wc)
	}
	if wc.Status != ib.WCSuccess { // both QPs have failed: create new ones
		w.a, w.b = w.newPair(ib.RC)
	}
	return wc.Status
}

// middle binds a window to the bytes from 1000 to 2000.
func (w *window) middle(access ib.Access) ib.MWBind {
	return ib.MWBind{LKey: w.dst.LKey(), Addr: w.dst.Addr() + 1000, Length: 1000, Access: access}
}

func TestWindowType1(t *testing.T) {
	w := newWindow(t)
	win := try(w.pd.AllocMW(ib.MWType1))(w.rig)
	if err := win.Bind(w.b, 1, 0, ib.MWBind{}); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("closed a window that was never bound: %v, want %v", err, ib.ErrInvalid)
	}
	first := win.RKey()
	w.must(win.Bind(w.b, 1, ib.SendSignaled, w.middle(ib.RemoteWrite)))
	if win.RKey() == first {
		t.Error("the key is the same after a bind")
	}
	w.want(1, ib.WCBindMW)
	if s := w.write(w.dst.Addr()+1500, win.RKey()); s != ib.WCSuccess || !bytes.Equal(w.to[1500:1518], w.from[:18]) {
		t.Errorf("a WRITE through the window: %v, want %v, and the data", s, ib.WCSuccess)
	}
	if err := w.dst.Close(); !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(), "window") {
		t.Errorf("closed a region with a window: %v, want %v and %q", err, ib.ErrBusy, "window")
	}
	// rdma_rxe checks the bounds of the region, not those of the window.
	if s := w.write(w.dst.Addr()+4090, win.RKey()); s != ib.WCRemAccessErr {
		t.Errorf("a WRITE beside the window: %v, want %v", s, ib.WCRemAccessErr)
	}
	w.must(win.Bind(w.b, 1, ib.SendSignaled, ib.MWBind{}))
	w.want(1, ib.WCBindMW)
	if s := w.write(w.dst.Addr()+1500, win.RKey()); s != ib.WCRemAccessErr {
		t.Errorf("a WRITE through a closed window: %v, want %v", s, ib.WCRemAccessErr)
	}
	w.must(w.dst.Close())
	for _, err := range []error{
		win.Bind(w.b, 1, 0, ib.MWBind{LKey: 0xBAD, Length: 1}),
		win.Bind(nil, 1, 0, w.middle(0)),
		win.Bind(w.b, 1, 0, ib.MWBind{LKey: w.src.LKey(), Addr: w.src.Addr(), Length: 8, Access: ib.ZeroBased}),
		try(w.pd.AllocMW(ib.MWType2))(w.rig).Bind(w.b, 1, 0, w.middle(0)),
	} {
		if !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("a bad bind: %v, want %v", err, ib.ErrInvalid)
		}
	}
}

func TestWindowType2(t *testing.T) {
	w := newWindow(t)
	win := try(w.pd.AllocMW(ib.MWType2))(w.rig)
	bind := func(b ib.MWBind) {
		t.Helper()
		w.send(w.b, ib.SendWR{ID: 1, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: ib.NextKey(win.RKey()),
			Bind: b})
		w.want(1, ib.WCBindMW)
	}
	bind(w.middle(ib.RemoteWrite | ib.ZeroBased))
	if s := w.write(500, win.RKey()); s != ib.WCSuccess || !bytes.Equal(w.to[1500:1518], w.from[:18]) {
		t.Errorf("a WRITE through the window: %v, want %v, and the data", s, ib.WCSuccess)
	}
	stale := win.RKey()
	w.send(w.b, ib.SendWR{ID: 2, Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, InvalidateKey: win.RKey()})
	w.want(2, ib.WCLocalInv)
	bind(w.middle(ib.RemoteWrite))
	// The peer invalidates the key by a SEND.
	w.recv(w.b, ib.RecvWR{ID: 3, SGL: []ib.SGE{sge(w.dst, 0, 8)}})
	w.send(w.a, ib.SendWR{ID: 4, Opcode: ib.WRSendInv, Flags: ib.SendSignaled, SGL: []ib.SGE{sge(w.src, 0, 8)},
		InvalidateKey: win.RKey()})
	if wc := w.wantBoth(4, 3); wc.Flags&ib.WCWithInv == 0 || wc.InvalidatedKey != win.RKey() {
		t.Errorf("completion %+v, want key %#x invalidated", wc, win.RKey())
	}
	// Post two binds at once, the second with the key after the first's.
	key := ib.NextKey(win.RKey())
	w.send(w.b, ib.SendWR{ID: 1, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: key,
		Bind: w.middle(ib.RemoteWrite)},
		ib.SendWR{ID: 2, Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, InvalidateKey: key},
		ib.SendWR{ID: 3, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: ib.NextKey(key),
			Bind: w.middle(ib.RemoteWrite)})
	w.want(1, ib.WCBindMW)
	w.want(2, ib.WCLocalInv)
	w.want(3, ib.WCBindMW)
	if s := w.write(w.dst.Addr()+1000, win.RKey()); s != ib.WCSuccess {
		t.Errorf("a WRITE through the window bound last: %v, want %v", s, ib.WCSuccess)
	}
	if s := w.write(w.dst.Addr()+1000, stale); s != ib.WCRemAccessErr {
		t.Errorf("a WRITE with a stale key: %v, want %v", s, ib.WCRemAccessErr)
	}
	for _, wr := range []ib.SendWR{
		{Opcode: ib.WRBindMW, RKey: 0xBAD00, Bind: w.middle(0)},
		{Opcode: ib.WRBindMW, RKey: ib.NextKey(win.RKey()), Bind: ib.MWBind{LKey: 0xBAD, Length: 1}},
		{Opcode: ib.WRBindMW, RKey: ib.NextKey(win.RKey()), SGL: []ib.SGE{{}}},
	} {
		if _, err := w.b.PostSend([]ib.SendWR{wr}); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("a bad bind: %v, want %v", err, ib.ErrInvalid)
		}
	}
}

// TestWindowOutlivesQP checks that a QP to which a window is bound can be closed, without
// delay, and that another QP can then bind the window.
func TestWindowOutlivesQP(t *testing.T) {
	w := newWindow(t)
	win := try(w.pd.AllocMW(ib.MWType2))(w.rig)
	for range 2 {
		w.send(w.b, ib.SendWR{ID: 1, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: ib.NextKey(win.RKey()),
			Bind: w.middle(ib.RemoteWrite)})
		w.want(1, ib.WCBindMW)
		if s := w.write(w.dst.Addr()+1000, win.RKey()); s != ib.WCSuccess {
			t.Errorf("a WRITE through the window: %v, want %v", s, ib.WCSuccess)
		}
		before := time.Now()
		w.must(w.b.Close())
		if took := time.Since(before); took > 20*time.Second {
			t.Errorf("closing the QP took %v, want at most %v", took, 20*time.Second)
		}
		w.a, w.b = w.newPair(ib.RC)
	}
	w.must(win.Close())
	w.must(w.dst.Close())
}

// TestWindowStays checks that a window that cannot be deallocated stays bound to its QP, which unbinds it when it is
// closed: the window then has a key of another index.
func TestWindowStays(t *testing.T) {
	w := newWindow(t)
	win := try(w.pd.AllocMW(ib.MWType2))(w.rig).(*mw)
	w.send(w.b, ib.SendWR{ID: 1, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: ib.NextKey(win.RKey()),
		Bind: w.middle(ib.RemoteWrite)})
	w.want(1, ib.WCBindMW)
	key, handle := win.RKey(), win.c.handle
	win.c.handle = 1 << 31 // the kernel knows no such window, and refuses
	if err := win.Close(); err == nil {
		t.Error("closed a window that the kernel does not know")
	}
	win.c.handle = handle
	if s := w.write(w.dst.Addr()+1000, key); s != ib.WCSuccess {
		t.Errorf("a WRITE through the window: %v, want %v", s, ib.WCSuccess)
	}
	w.must(w.b.Close())
	if got := win.RKey(); got&^0xFF == key&^0xFF {
		t.Errorf("key %#x after the QP was closed, before %#x; want one of another index", got, key)
	}
	w.must(win.Close())
}
