package mr

import "encoding/binary"

// Span is a checked part of a region: Len bytes from offset Off on.
//
// Its methods return FaultKey when the region is not registered any more and FaultBounds when the operation does not
// fit. All but Read return ErrNotDirect when the memory is not direct.
type Span struct {
	R   *Region
	Off uint64
	Len uint32
}

// Read fills p with the first bytes of s. If the memory is not direct, its errors are possible, too.
func (s Span) Read(p []byte) (err error) {
	if !s.R.begin() {
		return FaultKey
	}
	switch {
	case uint64(len(p)) > uint64(s.Len):
		err = FaultBounds
	case s.R.direct == nil:
		err = s.R.mem.ReadAt(p, s.R.base+s.Off)
	default:
		err = s.R.direct.ReadAt(p, s.Off)
	}
	s.R.end()
	return err
}

// Write stores p in the first bytes of s, the end last.
func (s Span) Write(p []byte) (err error) {
	if !s.R.begin() {
		return FaultKey
	}
	switch {
	case uint64(len(p)) > uint64(s.Len):
		err = FaultBounds
	case s.R.direct == nil:
		err = ErrNotDirect
	default:
		err = s.R.direct.WriteAt(p, s.Off)
	}
	s.R.end()
	return err
}

// CompareSwap stores swap in the 8 bytes of s if they hold compare, and returns their previous value. It is one atomic
// operation, in host byte order as in rdma_rxe. Len must be 8. The error is ErrMisaligned if the memory is not at a
// multiple of 8.
func (s Span) CompareSwap(compare, swap uint64) (old uint64, err error) {
	p, err := s.word()
	if err != nil {
		return 0, err
	}
	old = compareSwap(p, compare, swap)
	s.R.end()
	return old, nil
}

// FetchAdd adds to the 8 bytes of s and returns their previous value. Otherwise it is like CompareSwap.
func (s Span) FetchAdd(add uint64) (old uint64, err error) {
	p, err := s.word()
	if err != nil {
		return 0, err
	}
	old = fetchAdd(p, add)
	s.R.end()
	return old, nil
}

// AtomicWrite stores data in the 8 bytes of s as one store, without changing the byte order. Otherwise it is like
// CompareSwap. It is for ATOMIC WRITE, of the IBTA's memory placement extensions (annex A19).
func (s Span) AtomicWrite(data [8]byte) error {
	p, err := s.word()
	if err != nil {
		return err
	}
	store64(p, binary.NativeEndian.Uint64(data[:]))
	s.R.end()
	return nil
}

// word begins an access and returns the 8 bytes of s. If there is no error, the caller ends the access.
func (s Span) word() (p *uint64, err error) {
	if !s.R.begin() {
		return nil, FaultKey
	}
	switch {
	case s.Len != 8:
		err = FaultBounds
	case s.R.direct == nil:
		err = ErrNotDirect
	default:
		p, err = s.R.direct.word(s.Off)
	}
	if err != nil {
		s.R.end()
	}
	return p, err
}
