package ring

import "sync"

// A QP without a send or receive queue uses a ring of no entries in its place. All QPs,
// and both ends, share the two rings below. Push always fails, so neither the rings nor
// their buffers are ever written.

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
