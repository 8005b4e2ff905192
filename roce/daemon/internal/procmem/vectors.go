//go:build linux

package procmem

import (
	"sync"

	"golang.org/x/sys/unix"
)

// vectors are the arguments of a call. Packets that are adjacent in the process's memory are one remote
// vector.
type vectors struct {
	local         [512]unix.Iovec
	remote        [64]unix.RemoteIovec
	nl, nr, total int
}

var vectorPool = sync.Pool{New: func() any { return new(vectors) }}

// room reports whether one more packet has room.
func (v *vectors) room() bool { return v.nl+2 <= len(v.local) && v.nr < len(v.remote) }

// empty removes all, so that the pool does not keep buffers alive.
func (v *vectors) empty() {
	clear(v.local[:v.nl])
	v.nl, v.nr, v.total = 0, 0, 0
}

// add appends the bytes b of a packet at an address of the process. When it is written, its end is a
// vector of its own, which the kernel copies by itself behind the rest.
func (v *vectors) add(at uint64, b []byte, write bool) {
	last := 0
	if write {
		last = tail(at+uint64(len(b)), len(b))
	}
	if body := b[:len(b)-last]; len(body) > 0 {
		v.addLocal(body)
	}
	if last > 0 {
		v.addLocal(b[len(b)-last:])
	}
	if n := v.nr - 1; n >= 0 && uint64(v.remote[n].Base)+uint64(v.remote[n].Len) == at {
		v.remote[n].Len += len(b)
	} else {
		v.remote[v.nr] = unix.RemoteIovec{Base: uintptr(at), Len: len(b)}
		v.nr++
	}
	v.total += len(b)
}

func (v *vectors) addLocal(b []byte) {
	v.local[v.nl].Base = &b[0]
	v.local[v.nl].SetLen(len(b))
	v.nl++
}

// tail returns how many of n bytes in front of the address end are to be written last: 8 that are naturally
// aligned, or 4, 2 or 1, so that a number at the end of a message is never seen half written.
func tail(end uint64, n int) int {
	for size := 8; size > 1; size /= 2 {
		if end%uint64(size) == 0 && n >= size {
			return size
		}
	}
	return min(n, 1)
}
