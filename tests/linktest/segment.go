package linktest

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// Segment returns a Link on l that imitates a NIC with segmentation offload: its Caps have IDIndex. l must have IDFree
// and never block. number is called with the identifications 0, 1, 2 .. of the frames of each run of several, and may
// change them against the promise of IDIndex; it may be nil.
func Segment(l link.Link, number func(ids []uint16)) link.Link {
	s := &segmenter{Link: l, caps: l.Caps(), number: number}
	s.caps.Name, s.caps.ID, s.caps.Segments = "segment", link.IDIndex, true
	return s
}

type segmenter struct {
	link.Link
	caps   link.Caps
	number func(ids []uint16)
	ids    []uint16
}

func (s *segmenter) Caps() link.Caps { return s.caps }

func (s *segmenter) Send(now ib.Instant, out []link.Run) (int, error) {
	for i := range out {
		if err := s.segment(now, out[i]); err != nil {
			return i, err
		}
	}
	return len(out), nil
}

// segment sends a run frame by frame.
func (s *segmenter) segment(now ib.Instant, r link.Run) error {
	s.ids = s.ids[:0]
	for i := range r.Frames() {
		s.ids = append(s.ids, uint16(i))
	}
	if s.number != nil && len(s.ids) > 1 {
		s.number(s.ids)
	}
	for i, id := range s.ids {
		frame := r
		frame.ID, frame.Buf = id, r.Frame(i)
		if _, err := s.Link.Send(now, []link.Run{frame}); err != nil {
			return err
		}
	}
	return nil
}
