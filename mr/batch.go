package mr

// Piece is a part of a Memory, from offset Off on, with the bytes to write to it or to fill. Bytes to write are the
// payloads of packets, Each bytes long, or of one packet if Each is 0.
type Piece struct {
	Off  uint64
	B    []byte
	Each int
}

// Vector is a Memory that can write several pieces by one call, in their order, which saves the cost of a call for
// each. The end of each packet becomes visible last, as with Span.Write. After an error any of them may have been
// written.
type Vector interface {
	WriteVector(pieces []Piece) error
}

// VectorReader is a Memory that can fill several pieces by one call. After an error their contents are undefined.
type VectorReader interface {
	ReadVector(pieces []Piece) error
}

// maxPieces is how many pieces a Batch passes to a Vector at most, except for a train that has more.
const maxPieces = 1024

// Batch carries out placements and reads of messages. If a Memory is a Vector or a VectorReader, it combines successive
// accesses to one region. A Batch is not safe for concurrent use; its zero value is ready.
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
		if n > 0 && (n > 1 || list[i].Packets() > 1) && list[i].R.mem.(Vector).WriteVector(b.pieces) == nil {
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
		if p.R != r || p.Kind != PlaceWrite || i > 0 && len(b.pieces)+p.Packets() > maxPieces {
			return i
		}
		b.add(p)
	}
	return len(list)
}

// add appends the pieces of a write: one if its packets lie behind each other, otherwise one for each.
func (b *Batch) add(p *Placement) {
	off := p.R.base + p.Off
	if p.Stride == p.Each {
		b.pieces = append(b.pieces, Piece{Off: off, B: p.Data, Each: p.Each})
		return
	}
	for i := range p.Packets() {
		b.pieces = append(b.pieces, Piece{Off: off, B: p.Packet(i)})
		off += uint64(p.Each)
	}
}

// Message is a message in memory, and where its bytes go: Buf has its length.
type Message struct {
	SGL SGL
	Buf []byte
}

// Gather calls Gather for each message of list, and stores the errors in errs, which has the same length.
func (b *Batch) Gather(list []Message, errs []error) {
	for i := 0; i < len(list); {
		n := b.combine(list[i:])
		if n > 1 && list[i].SGL[0].R.mem.(VectorReader).ReadVector(b.pieces) == nil {
			clear(errs[i : i+n])
			i += n
			continue
		}
		for range max(n, 1) { // one by one, to find out which one fails
			errs[i] = Gather(list[i].Buf, list[i].SGL, 0)
			i++
		}
	}
}

// combine collects the messages at the start of list that can be read by one call, and returns their number.
func (b *Batch) combine(list []Message) int {
	b.pieces = b.pieces[:0]
	if len(list[0].SGL) == 0 {
		return 0
	}
	r := list[0].SGL[0].R
	if _, ok := r.mem.(VectorReader); !ok || !r.Valid() {
		return 0
	}
	for i := range list {
		if !b.addMessage(&list[i], r) {
			return i
		}
	}
	return len(list)
}

// addMessage appends the pieces of a message. It returns false, and appends nothing, if not all of it is in r, or there
// is no room.
func (b *Batch) addMessage(m *Message, r *Region) bool {
	before, buf := len(b.pieces), m.Buf
	for _, s := range m.SGL {
		n := min(int(s.Len), len(buf))
		if s.R != r || len(b.pieces) == maxPieces {
			break
		}
		b.pieces = append(b.pieces, Piece{Off: r.base + s.Off, B: buf[:n]})
		buf = buf[n:]
	}
	if len(buf) > 0 {
		b.pieces = b.pieces[:before]
	}
	return len(buf) == 0
}
