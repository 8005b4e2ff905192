// Package mrtest has memory for tests that is slow, and fails when the test wants it to.
//
// A [Memory] is not direct, so writes to it become placements. The test hands
// them to a [Queue], which keeps them until the test completes or fails them one
// by one.
package mrtest

import (
	"bytes"
	"encoding/binary"

	"github.com/goroce/goroce/mr"
)

// Memory is memory that is not direct. It is not safe for concurrent use.
type Memory struct {
	B    []byte // the contents
	Fail error  // if not nil, the error of every access

	Reads, Writes, Atomics, Persists int // number of accesses, failed ones included
}

// New returns size zero bytes.
func New(size int) *Memory { return &Memory{B: make([]byte, size)} }

// Len returns the number of bytes.
func (m *Memory) Len() uint64 { return uint64(len(m.B)) }

// Direct returns nil: this memory is reached by calls only.
func (m *Memory) Direct() []byte { return nil }

// ReadAt fills p from offset off.
func (m *Memory) ReadAt(p []byte, off uint64) error {
	m.Reads++
	b, err := m.slice(off, uint64(len(p)))
	copy(p, b)
	return err
}

// WriteAt stores p at offset off.
func (m *Memory) WriteAt(p []byte, off uint64) error {
	m.Writes++
	b, err := m.slice(off, uint64(len(p)))
	copy(b, p)
	return err
}

// CompareSwap stores swap at off if the value there is compare, and returns the previous value.
func (m *Memory) CompareSwap(off, compare, swap uint64) (uint64, error) {
	return m.update(off, func(old uint64) uint64 {
		if old == compare {
			return swap
		}
		return old
	})
}

// FetchAdd adds to the number at off and returns the previous value.
func (m *Memory) FetchAdd(off, add uint64) (uint64, error) {
	return m.update(off, func(old uint64) uint64 { return old + add })
}

// Persist counts the call and returns the error that the access meets (mr.Persister).
func (m *Memory) Persist(off, n uint64) error {
	m.Persists++
	_, err := m.slice(off, n)
	return err
}

func (m *Memory) update(off uint64, f func(uint64) uint64) (uint64, error) {
	m.Atomics++
	b, err := m.slice(off, 8)
	if err != nil {
		return 0, err
	}
	old := binary.NativeEndian.Uint64(b)
	binary.NativeEndian.PutUint64(b, f(old))
	return old, nil
}

// slice returns n bytes at off, or the error of the access.
func (m *Memory) slice(off, n uint64) ([]byte, error) {
	if m.Fail != nil {
		return nil, m.Fail
	}
	if size := uint64(len(m.B)); off > size || n > size-off {
		return nil, mr.FaultBounds
	}
	return m.B[off : off+n], nil
}

// Queue holds placements that are not carried out yet, oldest first.
type Queue struct{ late []mr.Placement }

// Add takes placements, with copies of their data.
func (q *Queue) Add(late ...mr.Placement) {
	for _, p := range late {
		p.Data = bytes.Clone(p.Data)
		q.late = append(q.late, p)
	}
}

// Len returns how many placements are under way.
func (q *Queue) Len() int { return len(q.late) }

// Complete carries out the oldest placement and returns its ID and its outcome,
// for Placed. ok is false if there is none.
func (q *Queue) Complete() (id, old uint64, ok bool, err error) {
	p, ok := q.take()
	if !ok {
		return 0, 0, false, nil
	}
	old, err = p.Do()
	return p.ID, old, true, err
}

// Drop removes the oldest placement without carrying it out, and returns its ID. The test reports it to Placed with an
// error.
func (q *Queue) Drop() (id uint64, ok bool) {
	p, ok := q.take()
	return p.ID, ok
}

func (q *Queue) take() (mr.Placement, bool) {
	if len(q.late) == 0 {
		return mr.Placement{}, false
	}
	p := q.late[0]
	q.late = q.late[1:]
	return p, true
}
