package mr

// Piece is a part of a Memory, from offset Off on, and where its bytes come from or go.
type Piece struct {
	Off uint64
	B   []byte
}

// Vector is a Memory that writes several pieces in one call, in their order: what each
// call costs is paid once. After an error any of them may have been written.
type Vector interface {
	WriteVector(pieces []Piece) error
}

// maxPieces is how many pieces a Batch gives to a Vector at most.
const maxPieces = 64

// Batch carries out placements, those that follow each other in one region by one call
// where its Memory is a Vector. It is for one goroutine; the zero value is ready.
type Batch struct{ pieces []Piece }

// Outcome is what came of a placement: what Do returns.
type Outcome struct {
	Old uint64
	Err error
}

// Do carries out a list of placements, in order, and fills out, which is as long.
func (b *Batch) Do(list []Placement, out []Outcome) {
	for i := 0; i < len(list); {
		n := b.gather(list[i:])
		if n > 1 && list[i].R.mem.(Vector).WriteVector(b.pieces) == nil {
			clear(out[i : i+n])
			i += n
			continue
		}
		for range max(n, 1) { // one by one: whose fault is it?
			out[i].Old, out[i].Err = list[i].Do()
			i++
		}
	}
}

// gather makes pieces of the writes at the start of list that can be done in one call,
// and returns how many these are.
func (b *Batch) gather(list []Placement) int {
	b.pieces = b.pieces[:0]
	r := list[0].R
	if _, ok := r.mem.(Vector); !ok || !r.Valid() {
		return 0
	}
	for i := range list {
		p := &list[i]
		if p.R != r || p.Kind != PlaceWrite || p.Packets() > 1 || i == maxPieces {
			break
		}
		b.pieces = append(b.pieces, Piece{Off: r.base + p.Off, B: p.Data})
	}
	return len(b.pieces)
}
