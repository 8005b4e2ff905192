// Package local has the addresses of a link, which change while it is open ([Set]).
package local

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/internal/group"
)

// Set is a set of addresses. Reading takes no lock.
type Set struct {
	link string                   // name of the link, for errors
	list atomic.Pointer[[]ib.GID] // replaced by each change

	mu   sync.Mutex // held during a change
	shut bool
}

// Init sets the first addresses of the link with that name.
func (s *Set) Init(name string, gids []ib.GID) {
	s.link = name
	gids = slices.Clone(gids)
	s.list.Store(&gids)
}

// List returns the addresses. The caller must not change the slice.
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

// Add adds g if change succeeds, which makes the link receive its frames.
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

// Remove removes g, and then calls change, which makes the link stop receiving its frames.
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

// Shut makes Add and Remove return link.ErrClosed, and returns when none is running any more.
func (s *Set) Shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
}

func (s *Set) refused(verb string, g ib.GID, allowed string) error {
	return driver.Refuse(fmt.Sprintf("%s address on link %s", verb, s.link), "address", g.Addr(), allowed,
		ib.ErrInvalid)
}
