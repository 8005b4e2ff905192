package server

import (
	"errors"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// Totals count what has happened since the server was made.
type Totals struct {
	Clients uint64            // that have connected
	Faults  uint64            // times that memory which a client shares was not there; it was dropped
	Refused map[string]uint64 // requests, by reason: "limit", "permission", "version", "other"
}

// refusalReasons: the first that an error matches counts, the last one all others.
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

// note counts the answer to a request.
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

// Totals returns the counts as they stand.
func (s *Server) Totals() Totals {
	t := Totals{Clients: s.totals.clients.Load(), Faults: s.totals.faults.Load(), Refused: map[string]uint64{}}
	for i, r := range refusalReasons {
		t.Refused[r.name] = s.totals.refused[i].Load()
	}
	return t
}
