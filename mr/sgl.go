package mr

// SGL is a scatter/gather list of checked Spans: the bytes of a message, in order.
type SGL []Span

// Len returns the number of bytes.
func (l SGL) Len() uint64 {
	n := uint64(0)
	for i := range l {
		n += uint64(l[i].Len)
	}
	return n
}

// Direct reports whether all of the memory is direct.
func (l SGL) Direct() bool {
	for i := range l {
		if l[i].R.direct == nil {
			return false
		}
	}
	return true
}

// AppendPart appends to dst the Spans of n bytes of l, from byte off on.
func (l SGL) AppendPart(dst SGL, off uint64, n int) SGL {
	for i := 0; i < len(l) && n > 0; i++ {
		if s := l[i].part(&off, n); s.Len > 0 {
			dst = append(dst, s)
			n -= int(s.Len)
		}
	}
	return dst
}

// Gather fills dst with bytes of the message in sgl, from byte off on. Each byte of memory is read once. It returns
// FaultKey if a region is not registered any more, FaultBounds if the message is too short, or the error of a Memory.
// The contents of dst are undefined then.
func Gather(dst []byte, sgl SGL, off uint64) error {
	for i := 0; i < len(sgl) && len(dst) > 0; i++ {
		s := sgl[i].part(&off, len(dst))
		if s.Len == 0 {
			continue
		}
		if err := s.Read(dst[:s.Len]); err != nil {
			return err
		}
		dst = dst[s.Len:]
	}
	if len(dst) > 0 {
		return FaultBounds
	}
	return nil
}

// GatherEach is Gather for several packets: for frames of size bytes, each with a header and n bytes of the message. If
// all bytes are in one region of direct memory, it begins and ends the access only once.
func GatherEach(frames []byte, size, header, n int, sgl SGL, off uint64) error {
	count := len(frames) / size
	if src, r := hold(sgl, off, count*n); r != nil {
		for i := range count {
			copyBytes(frames[i*size+header:][:n], src[i*n:][:n])
		}
		r.end()
		return nil
	}
	for i := range count {
		if err := Gather(frames[i*size+header:][:n], sgl, off+uint64(i*n)); err != nil {
			return err
		}
	}
	return nil
}

// hold returns the n bytes from byte off on with their region, whose access it begins; the caller ends it. It returns
// nil if the bytes are not all in one region of direct memory.
func hold(sgl SGL, off uint64, n int) ([]byte, *Region) {
	for i := range sgl {
		s := sgl[i].part(&off, n)
		if s.Len == 0 {
			continue
		}
		if int(s.Len) < n || s.R.direct == nil || !s.R.begin() {
			return nil, nil
		}
		if src, ok := s.R.direct.slice(s.Off, uint64(n)); ok {
			return src, s.R
		}
		s.R.end()
		return nil, nil
	}
	return nil, nil
}

// Scatter writes p, the payload of one packet, into the message in sgl from byte off on. It writes direct memory at
// once, the end of the payload last, because programs poll it. For other memory it appends a PlaceWrite to late: its
// Data aliases p, and its ID is 0, for the caller to set. late never grows beyond its capacity.
//
// Either all of p is dealt with or nothing is written. ErrNoRoom: late has too little room. FaultKey: a region is not
// registered any more. FaultBounds: the message is too short.
func Scatter(sgl SGL, off uint64, p []byte, late []Placement) ([]Placement, error) {
	if err := scatterable(sgl, off, len(p), cap(late)-len(late)); err != nil {
		return late, err
	}
	for i := 0; i < len(sgl) && len(p) > 0; i++ {
		s := sgl[i].part(&off, len(p))
		if s.Len == 0 {
			continue
		}
		data := p[:s.Len:s.Len]
		p = p[s.Len:]
		if s.R.direct == nil {
			late = append(late, Placement{Kind: PlaceWrite, R: s.R, Off: s.Off, Data: data})
			continue
		}
		if err := s.Write(data); err != nil {
			return late, err // the region has been deregistered since scatterable
		}
	}
	return late, nil
}

// scatterable returns the error of writing n bytes, or nil.
func scatterable(sgl SGL, off uint64, n, room int) error {
	for i := 0; i < len(sgl) && n > 0; i++ {
		s := sgl[i].part(&off, n)
		if s.Len == 0 {
			continue
		}
		n -= int(s.Len)
		if !s.R.Valid() {
			return FaultKey
		}
		if s.R.direct == nil {
			room--
		}
	}
	switch {
	case n > 0:
		return FaultBounds
	case room < 0:
		return ErrNoRoom
	}
	return nil
}

// part returns the part of s with at most n bytes of the message from byte *off on, and makes *off relative to the
// start of the next Span. Its Len is 0 if the bytes begin after s.
func (s *Span) part(off *uint64, n int) Span {
	skip := min(*off, uint64(s.Len))
	*off -= skip
	return Span{R: s.R, Off: s.Off + skip, Len: uint32(min(uint64(s.Len)-skip, uint64(n)))}
}
