package server

import (
	"errors"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// Totals count what has happened since the server was made.
type Totals struct {
	Clients uint64            // connections
	Faults  uint64            // accesses to clients' shared memory that faulted; the client was dropped
	Refused map[string]uint64 // refused requests, by reason: "limit", "permission", "version", "other"
}

// refusalReasons are the keys of Totals.Refused. An error counts for the first entry that it
// matches; the last entry matches all errors.
var refusalReasons = [...]struct {
	is   error
	name string
}{{ib.ErrLimit, "limit"}, {abi.ErrPermission, "permission"}, {abi.ErrVersion, "version"}, {nil, "other"}}

// totals are the counters of Totals.
type totals struct {
	clients atomic.Uint64
	faults  atomic.Uint64
	refused [len(refusalReasons)]atomic.Uint64
}

// note counts a request that was answered with err; nil is not counted.
func (t *totals) note(err error) {
	if err == nil {
		return
	}
	for i, r := range refusalReasons {
		if r.is == nil || errors.Is(err, r.is) {
			t.refused[i].Add(1)
			return
		}
	}
}

// Totals returns the current counts.
func (s *Server) Totals() Totals {
	t := Totals{Clients: s.totals.clients.Load(), Faults: s.totals.faults.Load(), Refused: map[string]uint64{}}
	for i, r := range refusalReasons {
		t.Refused[r.name] = s.totals.refused[i].Load()
	}
	return t
}
