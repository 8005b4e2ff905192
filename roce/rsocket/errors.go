package rsocket

import (
	"errors"
	"fmt"
	"syscall"
)

// ProtocolError says that the peer sent what no rsocket sends. The connection
// ended with it, or did not come up.
type ProtocolError struct {
	What    string // what was wrong: "credits"
	Value   uint64 // what it was
	Allowed string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("rsocket protocol violated by the peer: %s: %d, want %s", e.What, e.Value, e.Allowed)
}

// MapError says that a mapping failed, or a write into one.
type MapError struct {
	Op      string // "map", "unmap", "write"
	Offset  int64
	Len     int
	Allowed string
	Err     error // ErrNotMapped, ib.ErrLimit, ib.ErrInvalid
}

func (e *MapError) Error() string {
	return fmt.Sprintf("%s %d bytes at offset %d: %v: %s", e.Op, e.Len, e.Offset, e.Err, e.Allowed)
}

// Unwrap returns the sentinel.
func (e *MapError) Unwrap() error { return e.Err }

// ErrNotMapped: no buffer is mapped at that offset.
var ErrNotMapped = errors.New("not mapped")

// Why connections break. What breaks one matches syscall.ECONNRESET too.
var (
	errPeerClosed = errors.New("the peer closed the connection")
	errLinger     = errors.New("the peer did not take what was written within the time that Options.Linger gives")
)

// broken is the error of a connection that broke.
func broken(cause error) error { return fmt.Errorf("%w: %w", syscall.ECONNRESET, cause) }
