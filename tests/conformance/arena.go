package conformance

import "sync"

// Arena hands out pieces of one buffer, for Party.Alloc of devices that want memory of
// their own making. It begins again at the start when it has been through: what was there
// is not registered any more.
type Arena struct {
	mu  sync.Mutex
	buf []byte
	at  int
}

// NewArena returns an arena over buf, which begins on a cache line and has room for all
// that the cases register at a time.
func NewArena(buf []byte) *Arena { return &Arena{buf: buf} }

// Alloc returns n zero bytes that start on a cache line.
func (a *Arena) Alloc(n int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := (n + 63) &^ 63
	if a.at+size > len(a.buf) {
		a.at = 0
	}
	b := a.buf[a.at : a.at+n : a.at+n]
	a.at += size
	clear(b)
	return b
}
