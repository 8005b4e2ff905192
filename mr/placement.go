package mr

// PlacementKind says what a Placement does.
type PlacementKind uint8

// Kinds of placements.
const (
	PlaceWrite       PlacementKind = iota // write Data to Off
	PlaceCompareSwap                      // compare with A, store B
	PlaceFetchAdd                         // add A
	PlaceAtomicWrite                      // write the 8 bytes of Data, as one store if the Memory can
)

var placementText = [...]string{"write", "compare & swap", "fetch & add", "atomic write"}

// String returns the kind's name.
func (k PlacementKind) String() string {
	if int(k) < len(placementText) {
		return placementText[k]
	}
	return "unknown placement"
}

// Placement is an access to memory that is not direct: it is checked, and ready to be carried out by a goroutine that
// may block. Data is part of the input buffer that the packet came in: whoever keeps the Placement after the input has
// been handled must keep that buffer too, or copy Data.
//
// A Placement may be for a train (PlaceWrite only): the payloads of several packets, Each bytes long, which are written
// one behind the other from Off on. In Data the start of each payload is Stride bytes after the start of the one
// before, as there are headers in between.
type Placement struct {
	ID   uint64 // chosen by the owner, who finds it again when the placement is done
	Kind PlacementKind
	R    *Region
	Off  uint64
	Data []byte
	A, B uint64

	Each, Stride int // 0 if it is for one packet
}

// Packets returns the number of packets that the placement is for.
func (p *Placement) Packets() int {
	if p.Each == 0 {
		return 1
	}
	return (len(p.Data)-p.Each)/p.Stride + 1
}

// Len returns the number of bytes that it writes.
func (p *Placement) Len() int {
	if p.Each == 0 {
		return len(p.Data)
	}
	return p.Packets() * p.Each
}

// Packet returns the payload of packet i.
func (p *Placement) Packet(i int) []byte {
	if p.Each == 0 {
		return p.Data
	}
	return p.Data[i*p.Stride:][:p.Each:p.Each]
}

// Do carries out the placement. For CompareSwap and FetchAdd, old is the previous value of the memory. For a train that
// fails, it is the number of packets that were written before the one that failed. Errors: FaultKey when the region is
// not registered any more, or those of the Memory.
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
	}
	for i := range p.Packets() {
		b := p.Packet(i)
		if err := p.R.mem.WriteAt(b, off); err != nil {
			return uint64(i), err
		}
		off += uint64(len(b))
	}
	return 0, nil
}
