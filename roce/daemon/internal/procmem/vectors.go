//go:build linux

package procmem

import (
	"runtime"
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
func (v *vectors) room() bool { return v.nl+2 <= len(v.local) && v.nr+2 <= len(v.remote) }

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
	if weak && last > 0 && last < len(b) {
		v.addRemote(at, len(b)-last, true)
		v.addRemote(at+uint64(len(b)-last), last, false)
	} else {
		v.addRemote(at, len(b), true)
	}
	v.total += len(b)
}

// addRemote appends n bytes at an address of the process, to the vector before if they join it.
func (v *vectors) addRemote(at uint64, n int, join bool) {
	if i := v.nr - 1; join && i >= 0 && uint64(v.remote[i].Base)+uint64(v.remote[i].Len) == at {
		v.remote[i].Len += n
		return
	}
	v.remote[v.nr] = unix.RemoteIovec{Base: uintptr(at), Len: n}
	v.nr++
}

// weak reports that other processors may see stores out of order. Then the end of a packet is a remote vector of its
// own: before the kernel turns to it, it gives back the pages of the one before, by atomic operations that are full
// barriers. So a program that polls the end does not find it before the rest. amd64 shows stores in their order.
var weak = runtime.GOARCH != "amd64"

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
