package mr

import (
	"errors"
	"fmt"
)

// Fault says why an access to memory, a bind or an invalidation was refused.
// FaultNone is the zero value; a Fault other than it is an error.
type Fault uint8

// Faults. An access is checked for those up to FaultBounds, in this order; FaultBind and FaultState are faults of Bind
// and Invalidate only. They are not told apart outside: a peer gets NAK 0x62, remote access error, for all of them
// (IBTA 9.7.5.2.4), and a request of this end completes with the same status for all.
const (
	FaultNone   Fault = iota
	FaultKey          // the key belongs to no valid region or window
	FaultPD           // the region or window is of another protection domain
	FaultQP           // the window is bound to another QP
	FaultAccess       // the region or window does not grant the right, or its kind does not allow it
	FaultBounds       // the bytes are not all in the region or window
	FaultBind         // the window cannot be bound to the region in this way
	FaultState        // the window is bound, or the region has windows bound to it
)

var faultText = [...]string{"no fault", "key of no valid region or window",
	"region or window of another protection domain",
	"window bound to another QP", "access right missing", "out of bounds", "window cannot be bound in this way",
	"bound already"}

// String describes the fault.
func (f Fault) String() string {
	if int(f) < len(faultText) {
		return faultText[f]
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

func (f Fault) Error() string { return "memory access: " + f.String() }

// Errors of operations on checked memory.
var (
	// ErrNoRoom: the list of placements is too short for all of a packet. Nothing was written.
	ErrNoRoom = errors.New("memory access: placement list full")
	// ErrNotDirect: the region's memory is not in this process; the operation needs a Placement.
	ErrNotDirect = errors.New("memory access: memory is not direct")
	// ErrMisaligned: an 8-byte operation on an address that is not a multiple of 8.
	ErrMisaligned = errors.New("memory access: address is not a multiple of 8")
)
