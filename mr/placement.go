package mr

// PlacementKind says what a Placement does.
type PlacementKind uint8

// Kinds of placements.
const (
	PlaceWrite       PlacementKind = iota // Data to Off
	PlaceCompareSwap                      // A is the value compared with, B the one stored
	PlaceFetchAdd                         // A is added
	PlaceAtomicWrite                      // the 8 bytes of Data to Off, at once where the Memory can
)

var placementText = [...]string{"write", "compare & swap", "fetch & add", "atomic write"}

// String returns the kind's name.
func (k PlacementKind) String() string {
	if int(k) < len(placementText) {
		return placementText[k]
	}
	return "unknown placement"
}

// Placement is work on memory that is not direct, checked and ready, for somebody
// who may block. Data belongs to the input buffer that it came in: whoever keeps
// the Placement longer keeps that buffer, or copies.
type Placement struct {
	ID   uint64 // by which its owner recognises it when it is done
	Kind PlacementKind
	R    *Region
	Off  uint64
	Data []byte
	A, B uint64
}

// Do carries the placement out and returns, for CompareSwap and FetchAdd, what
// the memory held before. Errors: FaultKey when the region is registered no more,
// or those of the Memory.
func (p *Placement) Do() (old uint64, err error) {
	if !p.R.Valid() {
		return 0, FaultKey
	}
	off := p.R.base + p.Off
	switch p.Kind {
	case PlaceCompareSwap:
		return p.R.mem.CompareSwap(off, p.A, p.B)
	case PlaceFetchAdd:
		return p.R.mem.FetchAdd(off, p.A)
	default:
		return 0, p.R.mem.WriteAt(p.Data, off)
	}
}
