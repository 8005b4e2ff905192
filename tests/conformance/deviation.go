package conformance

import (
	"fmt"
	"path"
	"strings"

	"github.com/goroce/goroce/ib"
)

// Role says which half a device runs.
type Role string

// Roles.
const (
	Active  Role = "active"  // the requester, the client
	Passive Role = "passive" // the responder, the server
	Alone   Role = "alone"   // without a partner
)

// Deviation is a known difference of a kind of device, a row of a table.
type Deviation struct {
	// Kind is a pattern for Party.Kind and the family of the address, "rdma_rxe/6.1/IPv4". Patterns are those of
	// path.Match; a trailing /** matches everything below, and ** matches all.
	Kind   string
	Role   Role   // role of the device; "" for any
	Cases  string // pattern for names
	Effect Effect
	Reason string // the cause, with its source
}

// Effect is the effect of a deviation on a case; see the functions below.
type Effect struct {
	Kind  effectKind
	Want  ib.WCStatus
	Got   ib.WCStatus
	Event ib.EventType
	Text  string

	WantCM, GotCM int

	Rare bool // it need not occur
}

type effectKind string

const (
	effectSkip   effectKind = "skip"
	effectStatus effectKind = "status"
	effectCM     effectKind = "cm-status"
	effectEvent  effectKind = "event"
	effectFails  effectKind = "fails"
)

// Skip skips the case, because it would hang, or crash a device.
func Skip() Effect { return Effect{Kind: effectSkip} }

// Status allows a work request to complete with got where the case expects want, in both halves. The rest of the case
// applies.
func Status(want, got ib.WCStatus) Effect {
	return Effect{Kind: effectStatus, Want: want, Got: got}
}

// CMStatus lets an event of the connection manager have status got where the case wants
// another one, in either half. The rest of the case holds.
func CMStatus(want, got int) Effect {
	return Effect{Kind: effectCM, WantCM: want, GotCM: got}
}

// NoEvent says that the device never raises an event; waiting for it is over at
// once.
func NoEvent(t ib.EventType) Effect { return Effect{Kind: effectEvent, Event: t} }

// Fails says that the case fails, with an error of either half that contains text.
func Fails(text string) Effect { return Effect{Kind: effectFails, Text: text} }

// Maybe is the effect where it need not occur.
func (e Effect) Maybe() Effect {
	e.Rare = true
	return e
}

func (e Effect) String() string {
	switch e.Kind {
	case effectStatus:
		return fmt.Sprintf("%v instead of %v", e.Got, e.Want)
	case effectCM:
		return fmt.Sprintf("CM status %d instead of %d", e.GotCM, e.WantCM)
	case effectEvent:
		return fmt.Sprintf("no event %v", e.Event)
	case effectFails:
		return fmt.Sprintf("fails with %q", e.Text)
	}
	return string(e.Kind)
}

// applies reports whether the row is for this device and this case.
func (d *Deviation) applies(kind string, role Role, name string) bool {
	if d.Role != "" && d.Role != role {
		return false
	}
	return matchPath(d.Kind, kind) && matchPath(d.Cases, name)
}

// matchPath is path.Match with a trailing /** for everything below, and ** for all.
func matchPath(pattern, name string) bool {
	if pattern == "**" {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, "/**"); ok {
		parts := strings.Count(prefix, "/") + 1
		elems := strings.Split(name, "/")
		if len(elems) <= parts {
			return false
		}
		pattern, name = prefix, strings.Join(elems[:parts], "/")
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// rule is a deviation as it is sent to a half, which does not know the table.
type rule struct {
	Row    int  // in the leader's table
	Remote bool // the deviation is of the other half's device
	Effect Effect
}

// rulesFor returns the rules of the table for a case, for the halves here and there.
func rulesFor(table []Deviation, name string, here, there *hello, role Role) (local, remote []rule) {
	other := map[Role]Role{Active: Passive, Passive: Active}[role]
	for i := range table {
		d := &table[i]
		if d.applies(here.kind(), role, name) {
			local = append(local, rule{Row: i, Effect: d.Effect})
			remote = append(remote, rule{Row: i, Remote: true, Effect: d.Effect})
		}
		if other != "" && d.applies(there.kind(), other, name) {
			local = append(local, rule{Row: i, Remote: true, Effect: d.Effect})
			remote = append(remote, rule{Row: i, Effect: d.Effect})
		}
	}
	return local, remote
}
