package rsocket

import (
	"errors"
	"fmt"
	"syscall"
)

// ProtocolError says that the peer has violated the protocol. It ends the connection, or the attempt to connect.
type ProtocolError struct {
	What    string // the item that was wrong: "credits"
	Value   uint64 // its value
	Allowed string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("rsocket protocol violated by the peer: %s: %d, want %s", e.What, e.Value, e.Allowed)
}

// MapError says that a mapping, or a write to one, has failed.
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

// Causes of broken connections. An error that has one of them matches syscall.ECONNRESET, too.
var (
	errPeerClosed = errors.New("the peer closed the connection")
	errLinger     = errors.New("the peer did not take what was written within the time that Options.Linger gives")
)

// broken returns the error of a connection that is broken because of cause.
func broken(cause error) error { return fmt.Errorf("%w: %w", syscall.ECONNRESET, cause) }
