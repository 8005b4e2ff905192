package rstream

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// memory is where transfers lie.
type memory struct {
	words []uint32 // aligned, and as many as the last byte needs
	bytes []byte   // the same
}

// newMemory has room for transfers of that size, and for the messages of sync.
func newMemory(size int) *memory {
	const word = 4
	words := make([]uint32, (max(size, syncLen)+word-1)/word)
	return &memory{words, unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*word)}
}

// load reads a byte that the peer may be writing. What the peer wrote before it is
// there, too.
func (m *memory) load(i int) byte {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], atomic.LoadUint32(&m.words[i/4]))
	return b[i%4]
}
