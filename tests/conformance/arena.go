package conformance

import "sync"

// Arena allocates parts of one buffer, for Party.Alloc of devices that must allocate their memory themselves. At the
// end of the buffer it starts again at the beginning; the regions there are closed by then.
type Arena struct {
	mu  sync.Mutex
	buf []byte
	at  int
}

// NewArena returns an arena over buf, which must be aligned to a cache line and have room for everything that the cases
// register at a time.
func NewArena(buf []byte) *Arena { return &Arena{buf: buf} }

// Alloc returns n zeroed bytes that are aligned to a cache line.
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
