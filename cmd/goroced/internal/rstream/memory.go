package rstream

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// memory is the buffer of transfers.
type memory struct {
	words []uint32 // aligned, long enough for the last byte
	bytes []byte   // the same memory as bytes
}

// newMemory allocates memory for transfers of that size, and for the messages of sync.
func newMemory(size int) *memory {
	const word = 4
	words := make([]uint32, (max(size, syncLen)+word-1)/word)
	return &memory{words, unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*word)}
}

// load reads a byte that the peer may be writing. Everything that the peer wrote before it can then be read, too.
func (m *memory) load(i int) byte {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], atomic.LoadUint32(&m.words[i/4]))
	return b[i%4]
}
