package ring

import "sync"

// Rings of no entries: what a QP has in place of a queue that takes no work. All
// QPs share them, both ends alike. Nothing can be pushed, so nobody writes to them
// or to the buffer.

// NoSend returns the send ring of no entries.
func NoSend() *Send { return noSend() }

// NoRecv returns the receive ring of no entries.
func NoRecv() *Recv { return noRecv() }

var (
	noSend = sync.OnceValue(func() *Send { return must(NewSend(Alloc(SendSize(0, 0, 0)), 0, 0, 0)) })
	noRecv = sync.OnceValue(func() *Recv { return must(NewRecv(Alloc(RecvSize(0, 0)), 0, 0)) })
)

func must[T any](r T, err error) T {
	if err != nil {
		panic(err) // the arguments are constants
	}
	return r
}
