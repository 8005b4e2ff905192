// Package driver has what implementers of ib.Device need, and the layers and commands on them, but applications do not.
// It is not a stable API: only packages of goroce use it.
package driver

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/internal/seal"
)

// Implementation makes a type that embeds it one that may implement the interfaces of package ib. Embed it as the first
// field: at the end of a struct, an empty field takes space.
type Implementation = seal.Implementation

// Never is later than all other instants: the value of a deadline that is not set.
const Never ib.Instant = 1<<63 - 1

// ListGIDs returns the addresses of a GID table as text.
func ListGIDs(gids []ib.GIDEntry) string {
	s := ""
	for i, e := range gids {
		if i > 0 {
			s += ", "
		}
		s += e.GID.Addr().String()
	}
	return s
}

// Refuse returns the error for an attribute that the verb op refuses; err is the sentinel to wrap.
func Refuse(op, attr string, value any, allowed string, err error) *ib.AttrError {
	return &ib.AttrError{Op: op, Attr: attr, Value: value, Allowed: allowed, Err: err}
}

// CheckMTU returns the error for what is not a path MTU.
func CheckMTU(op string, m ib.MTU) error {
	if m.Valid() {
		return nil
	}
	return Refuse(op, "MTU", int(m), "256, 512, 1024, 2048, 4096", ib.ErrInvalid)
}

// PlainAddr returns an address in the form used for GIDs: not IPv4-mapped, and without a zone.
func PlainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
