package mr

import (
	"errors"
	"fmt"
)

// Fault says why an access to memory was refused. FaultNone is the zero value; a
// Fault other than it is an error.
type Fault uint8

// Faults, in the order in which they are looked for. A peer is told of all of
// them alike, by NAK 0x62, remote access error (IBTA 9.7.5.2.4).
const (
	FaultNone   Fault = iota
	FaultKey          // the key names no region
	FaultPD           // the region is of another protection domain
	FaultAccess       // the region lacks an access right
	FaultBounds       // the bytes are not all in the region
)

var faultText = [...]string{"no fault", "no region has this key", "region of another protection domain",
	"region lacks the access right", "out of the region's bounds"}

// String says what was wrong.
func (f Fault) String() string {
	if int(f) < len(faultText) {
		return faultText[f]
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

func (f Fault) Error() string { return "memory access: " + f.String() }

// Errors of operations on checked memory.
var (
	// ErrNoRoom: the list of placements has no room for all of a packet. Nothing
	// was written.
	ErrNoRoom = errors.New("memory access: placement list full")
	// ErrNotDirect: the region's memory is not in this process; the operation is
	// for a Placement.
	ErrNotDirect = errors.New("memory access: memory is not direct")
	// ErrMisaligned: an 8-byte operation on an address that is no multiple of 8.
	ErrMisaligned = errors.New("memory access: not a multiple of 8")
)
