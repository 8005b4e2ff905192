package rdmacm

import (
	"fmt"
	"math/rand/v2"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// firstDynamic is the first of the ports that are chosen, up to 65535 (RFC 6335,
// section 6).
const firstDynamic = 49152

// portKey is a port of a port space.
type portKey struct {
	space wire.PortSpace
	port  uint16
}

// portTable counts who uses which port of this CM: connections by their source
// port, listeners, of which those of several addresses may share one.
type portTable struct {
	users map[portKey]int
	next  uint16 // to try
}

// newPortTable begins anywhere: other CMs of the device choose, too.
func newPortTable() portTable {
	return portTable{users: map[portKey]int{}, next: firstDynamic + rand.N[uint16](1<<16-firstDynamic)}
}

// pick takes a port that nobody uses.
func (t *portTable) pick(space wire.PortSpace) (portKey, error) {
	for range 1<<16 - firstDynamic {
		k := portKey{space, t.next}
		t.next = max(t.next+1, firstDynamic)
		if t.users[k] == 0 {
			t.users[k] = 1
			return k, nil
		}
	}
	return portKey{}, fmt.Errorf("no free port from %d to 65535 in port space %v: close connections first: %w", firstDynamic, space, ib.ErrLimit)
}

// take takes this port: alone, or as one of several.
func (t *portTable) take(k portKey, alone bool) error {
	if alone && t.users[k] > 0 {
		return fmt.Errorf("source port %d of port space %v: %w; leave it 0 to have one chosen", k.port, k.space, cm.ErrInUse)
	}
	t.users[k]++
	return nil
}

// release gives a port back; the zero key is none.
func (t *portTable) release(k portKey) {
	if k == (portKey{}) {
		return
	}
	if t.users[k]--; t.users[k] == 0 {
		delete(t.users, k)
	}
}
