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
//
// A train (PlaceWrite only) is the payloads of several packets, Each bytes long, that go
// one behind the other from Off on. In Data they lie Stride bytes apart, from the start of
// one to that of the next: the headers of packets are in between.
type Placement struct {
	ID   uint64 // by which its owner recognises it when it is done
	Kind PlacementKind
	R    *Region
	Off  uint64
	Data []byte
	A, B uint64

	Each, Stride int // 0 if it is of one packet
}

// Packets returns how many packets the placement is of.
func (p *Placement) Packets() int {
	if p.Each == 0 {
		return 1
	}
	return (len(p.Data)-p.Each)/p.Stride + 1
}

// Packet returns the payload of packet i.
func (p *Placement) Packet(i int) []byte {
	if p.Each == 0 {
		return p.Data
	}
	return p.Data[i*p.Stride:][:p.Each:p.Each]
}

// Do carries the placement out and returns, for CompareSwap and FetchAdd, what the memory
// held before, and for a train that fails, how many of its packets were written: those
// before the one whose memory has failed. Errors: FaultKey when the region is registered
// no more, or those of the Memory.
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
