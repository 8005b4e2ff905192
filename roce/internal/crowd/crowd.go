// Package crowd keeps entries by their source, of which one may send many, so that room for a new entry is made at the
// cost of the source that has the most. Each operation takes the same time, however many entries there are. It is pure.
package crowd

import (
	"container/list"

	"github.com/goroce/goroce/ib"
)

// List has entries with a value of type T. The zero value is empty.
type List[T any] struct {
	sources map[ib.GID]*source[T]
	sizes   []*list.List // of *source[T], by the number of their entries: those that have it longest come first
	len     int
}

// source is a source with at least one entry.
type source[T any] struct {
	gid     ib.GID
	entries *list.List    // of *Entry[T], the oldest first
	at      *list.Element // in sizes
}

// Entry is a place in a List.
type Entry[T any] struct {
	Value  T
	source *source[T]
	at     *list.Element // in source.entries
}

// Len returns the number of entries.
func (l *List[T]) Len() int { return l.len }

// Sources returns the number of sources that have entries.
func (l *List[T]) Sources() int { return len(l.sources) }

// LenOf returns the number of entries of a source.
func (l *List[T]) LenOf(gid ib.GID) int {
	if s := l.sources[gid]; s != nil {
		return s.entries.Len()
	}
	return 0
}

// OldestOf returns the oldest entry of a source; nil if it has none.
func (l *List[T]) OldestOf(gid ib.GID) *Entry[T] {
	if s := l.sources[gid]; s != nil {
		return s.entries.Front().Value.(*Entry[T])
	}
	return nil
}

// Crowded returns the oldest entry of the source that has the most entries; nil if the list is empty.
func (l *List[T]) Crowded() *Entry[T] {
	if l.len == 0 {
		return nil
	}
	largest := l.sizes[len(l.sizes)-1]
	return largest.Front().Value.(*source[T]).entries.Front().Value.(*Entry[T])
}

// Add adds an entry, the newest of its source.
func (l *List[T]) Add(gid ib.GID, v T) *Entry[T] {
	s := l.sources[gid]
	if s == nil {
		if l.sources == nil {
			l.sources = map[ib.GID]*source[T]{}
		}
		s = &source[T]{gid: gid, entries: list.New()}
		l.sources[gid] = s
	}
	l.leave(s)
	e := &Entry[T]{Value: v, source: s}
	e.at = s.entries.PushBack(e)
	l.enter(s)
	l.len++
	return e
}

// Remove removes an entry, which must be in the list.
func (l *List[T]) Remove(e *Entry[T]) {
	s := e.source
	l.leave(s)
	s.entries.Remove(e.at)
	l.enter(s)
	l.len--
	if s.entries.Len() == 0 {
		delete(l.sources, s.gid)
	}
}

// enter puts a source among those with as many entries.
func (l *List[T]) enter(s *source[T]) {
	n := s.entries.Len()
	if n == 0 {
		return
	}
	for len(l.sizes) <= n {
		l.sizes = append(l.sizes, list.New())
	}
	s.at = l.sizes[n].PushBack(s)
}

// leave takes a source off sizes, before the number of its entries changes by one.
func (l *List[T]) leave(s *source[T]) {
	n := s.entries.Len()
	if n == 0 {
		return
	}
	l.sizes[n].Remove(s.at)
	for len(l.sizes) > 0 && l.sizes[len(l.sizes)-1].Len() == 0 {
		l.sizes = l.sizes[:len(l.sizes)-1]
	}
}
