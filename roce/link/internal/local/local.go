// Package local holds the addresses that a link has at the moment ([Set]).
package local

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
)

// Set is a set of addresses. Reading takes no lock.
type Set struct {
	link string                   // for errors
	list atomic.Pointer[[]ib.GID] // a new one with each change

	mu   sync.Mutex // held while it changes
	shut bool
}

// Init gives the set of the link with that name its first addresses.
func (s *Set) Init(name string, gids []ib.GID) {
	s.link = name
	gids = slices.Clone(gids)
	s.list.Store(&gids)
}

// List returns the addresses. It is not to be written to.
func (s *Set) List() []ib.GID { return *s.list.Load() }

// Has reports whether g is one of the addresses.
func (s *Set) Has(g *ib.GID) bool {
	list := *s.list.Load()
	for i := range list {
		if list[i] == *g {
			return true
		}
	}
	return false
}

// Add adds g if change, which makes the link have it, succeeds.
func (s *Set) Add(g ib.GID, change func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.shut:
		return link.ErrClosed
	case group.Is(&g) || g == ib.GID{}:
		return s.refused("add", g, "a unicast address")
	case s.Has(&g):
		return s.refused("add", g, "one that the link does not have yet")
	}
	if err := change(); err != nil {
		return err
	}
	list := append(slices.Clone(s.List()), g)
	s.list.Store(&list)
	return nil
}

// Remove removes g, before change takes it from the link.
func (s *Set) Remove(g ib.GID, change func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.shut:
		return link.ErrClosed
	case !s.Has(&g):
		return s.refused("remove", g, "one that the link has")
	}
	list := slices.DeleteFunc(slices.Clone(s.List()), func(l ib.GID) bool { return l == g })
	s.list.Store(&list)
	return change()
}

// Shut makes Add and Remove return link.ErrClosed, and returns when none is under way
// any more.
func (s *Set) Shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
}

func (s *Set) refused(verb string, g ib.GID, allowed string) error {
	return ib.Refuse(fmt.Sprintf("%s address on link %s", verb, s.link), "address", g.Addr(), allowed, ib.ErrInvalid)
}
