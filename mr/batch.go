package mr

// Piece is a part of a Memory, from offset Off on, with the bytes to write to it.
type Piece struct {
	Off uint64
	B   []byte
}

// Vector is a Memory that can write several pieces by one call, in their order, which saves the cost of a call for
// each.
type Vector interface {
	// WriteVector writes the pieces. After an error any of them may have been written.
	WriteVector(pieces []Piece) error
	// Gathers reports whether pieces for consecutive offsets, of a kilobyte or so, cost little more than one piece with
	// all their bytes. If so there is no need to copy them together first.
	Gathers() bool
}

// maxPieces is how many pieces a Batch passes to a Vector at most, except for a train that has more.
const maxPieces = 1024

// Gathers reports whether the region's memory is a Vector that gathers.
func (r *Region) Gathers() bool {
	v, ok := r.mem.(Vector)
	return ok && v.Gathers()
}

// Batch carries out placements. If a Memory is a Vector, it combines successive writes to one region. A Batch is not
// safe for concurrent use; its zero value is ready.
type Batch struct{ pieces []Piece }

// Outcome is the result of a placement: what Do returns.
type Outcome struct {
	Old uint64
	Err error
}

// Do carries out the placements of list in order, and stores their outcomes in out, which has the same length.
func (b *Batch) Do(list []Placement, out []Outcome) {
	for i := 0; i < len(list); {
		n := b.gather(list[i:])
		if len(b.pieces) > 1 && list[i].R.mem.(Vector).WriteVector(b.pieces) == nil {
			clear(out[i : i+n])
			i += n
			continue
		}
		for range max(n, 1) { // one by one, to find out which one fails
			out[i].Old, out[i].Err = list[i].Do()
			i++
		}
	}
}

// gather collects the writes at the start of list that can be done by one call, and returns their number.
func (b *Batch) gather(list []Placement) int {
	b.pieces = b.pieces[:0]
	r := list[0].R
	if _, ok := r.mem.(Vector); !ok || !r.Valid() {
		return 0
	}
	for i := range list {
		p := &list[i]
		packets := p.Packets()
		if p.R != r || p.Kind != PlaceWrite || i > 0 && len(b.pieces)+packets > maxPieces {
			return i
		}
		off := r.base + p.Off
		for j := range packets {
			data := p.Packet(j)
			b.pieces = append(b.pieces, Piece{Off: off, B: data})
			off += uint64(len(data))
		}
	}
	return len(list)
}
