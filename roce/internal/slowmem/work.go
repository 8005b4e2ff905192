package slowmem

import (
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
)

// work is a list of placements and fetches for a worker, with their QPs.
type work[Q comparable] struct {
	writes []mr.Placement
	whose  []placer[Q] // whose[i] belongs to writes[i]
	parts  []part
	data   arena // data of writes
	open   int   // index of the write that the arena's latest copy belongs to, -1 if to none
	gets   []qp.Fetch
	getOf  []Q // getOf[i] is the QP of gets[i]

	holder any // in whose buffers the data of some writes is; nil if all of it is in the arena

	placed, got int // how many writes and gets are done

	over chan struct{} // closed when all is done, or never will be; nil while nobody waits for it
}

// placer is the QP of a placement, and its parts: packets of one size that write to consecutive
// addresses are merged into one placement.
type placer[Q comparable] struct {
	q           Q
	first, last int  // in parts, the last one excluded
	held        bool // the data is in a buffer of the holder
}

// part is the share of a packet, or of a train of packets, in a placement.
type part struct {
	id   uint64
	n    int // bytes
	each int // bytes of each packet of a train; mr.Placement.Each
}

// finished reports whether all is done.
func (k *work[Q]) finished() bool { return k.placed == len(k.writes) && k.got == len(k.gets) }

// settle makes k let go of everything if all is done.
func (k *work[Q]) settle() {
	if k.finished() {
		k.end()
		*k = k.emptied()
	}
}

// ended returns a channel that is closed when all is done, or end is called.
func (k *work[Q]) ended() <-chan struct{} {
	if k.over == nil {
		k.over = make(chan struct{})
	}
	return k.over
}

// end tells those who wait that no more will be done.
func (k *work[Q]) end() {
	if k.over != nil {
		close(k.over)
		k.over = nil
	}
}

// emptied returns an empty work that reuses the memory of k.
func (k *work[Q]) emptied() work[Q] {
	clear(k.writes)
	clear(k.whose)
	clear(k.gets)
	clear(k.getOf)
	k.data.empty()
	return work[Q]{writes: k.writes[:0], whose: k.whose[:0], parts: k.parts[:0], data: k.data, gets: k.gets[:0],
		getOf: k.getOf[:0]}
}

// place appends a placement of q, with a copy of its data.
func (k *work[Q]) place(q Q, p *mr.Placement) {
	size := len(p.Packet(0))
	data, goesOn := k.data.add(p)
	k.parts = append(k.parts, part{p.ID, len(data), p.Each})
	if n := len(k.writes) - 1; goesOn && n == k.open && k.whose[n].q == q {
		if w := &k.writes[n]; w.Kind == mr.PlaceWrite && p.Kind == mr.PlaceWrite && w.R == p.R &&
			w.Each == size && w.Off+uint64(len(w.Data)) == p.Off {
			w.Data = w.Data[:len(w.Data)+len(data)]
			k.whose[n].last++
			return
		}
	}
	w := *p
	w.Data, w.Each, w.Stride = data, size, size
	k.open = len(k.writes)
	k.writes = append(k.writes, w)
	k.whose = append(k.whose, placer[Q]{q: q, first: len(k.parts) - 1, last: len(k.parts)})
}

// leastHeld is the number of bytes from which on a placement's data is not copied. Small pieces
// cost less to copy than to write by themselves, and may keep a buffer that is much larger.
const leastHeld = 1 << 10

// hold is place without a copy, if the placement has enough data.
func (k *work[Q]) hold(q Q, p *mr.Placement) {
	n := p.Len()
	if p.Kind != mr.PlaceWrite || n < leastHeld {
		k.place(q, p)
		return
	}
	k.parts = append(k.parts, part{p.ID, n, p.Each})
	k.writes = append(k.writes, *p)
	k.whose = append(k.whose, placer[Q]{q: q, first: len(k.parts) - 1, last: len(k.parts), held: true})
}

// own copies the data that is in buffers of the holder.
func (k *work[Q]) own() {
	if k.holder == nil {
		return
	}
	k.holder = nil
	for i := k.placed; i < len(k.writes); i++ {
		if w := &k.writes[i]; k.whose[i].held {
			w.Data, _ = k.data.add(w)
			w.Stride = w.Each
			k.whose[i].held = false
		}
	}
	k.open = -1
}

// forget removes the placements of q that are not done. Its fetches stay: they change no memory of the
// application, and q waits for the answers before it uses their buffers again.
func (k *work[Q]) forget(q Q) {
	n := k.placed
	for i := k.placed; i < len(k.writes); i++ {
		if k.whose[i].q != q {
			k.writes[n], k.whose[n] = k.writes[i], k.whose[i]
			n++
		}
	}
	if n < len(k.writes) {
		k.open = -1
	}
	clear(k.writes[n:])
	clear(k.whose[n:])
	k.writes, k.whose = k.writes[:n], k.whose[:n]
}

// some returns how many of the remaining placements the next turn carries out: at least one if
// there is one.
func (k *work[Q]) some() (n int) {
	left := k.writes[k.placed:]
	for bytes := 0; n < min(len(left), turnPlaces); n++ {
		if bytes += left[n].Len(); n > 0 && bytes > turnBytes {
			break
		}
	}
	return n
}

// answer appends the answers of placement i, whose outcome is out. If writing failed, it repeats
// each part on its own, packet by packet, to find the packets that cannot be written.
func (k *work[Q]) answer(list []Answer[Q], i int, out mr.Outcome) []Answer[Q] {
	w, who := &k.writes[i], &k.whose[i]
	alone := out.Err != nil && w.Kind == mr.PlaceWrite
	off := 0
	for _, p := range k.parts[who.first:who.last] {
		a := Answer[Q]{User: who.q, ID: p.id, Old: out.Old, Err: out.Err}
		if alone {
			one := *w
			if who.last-who.first > 1 {
				one = mr.Placement{Kind: w.Kind, R: w.R, Off: w.Off + uint64(off), Data: w.Data[off : off+p.n],
					Each: p.each, Stride: p.each}
			}
			a.Old, a.Err = one.Do()
			off += p.n
		}
		list = append(list, a)
	}
	return list
}

// arena holds the data of waiting placements, in chunks.
type arena struct {
	chunks [][]byte
	n      int // chunks in use; the last of them is being filled
}

const (
	arenaChunk = 64 << 10
	arenaKeeps = 64 // chunks that an empty arena keeps
)

// add copies the data of a placement, the packets of a train back to back. goesOn reports that
// the copy directly follows the previous one in memory, which can then be extended over it within
// its capacity.
func (a *arena) add(p *mr.Placement) (_ []byte, goesOn bool) {
	n := p.Packets()
	bytes := p.Len()
	if goesOn = a.n > 0 && len(a.chunks[a.n-1])+bytes <= arenaChunk; !goesOn {
		if a.n == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, 0, max(arenaChunk, bytes)))
		}
		a.n++
	}
	c := &a.chunks[a.n-1]
	at := len(*c)
	for i := range n {
		*c = append(*c, p.Packet(i)...)
	}
	return (*c)[at:], goesOn
}

// empty removes all data, and frees all but arenaKeeps chunks.
func (a *arena) empty() {
	clear(a.chunks[min(arenaKeeps, len(a.chunks)):])
	a.chunks = a.chunks[:min(arenaKeeps, len(a.chunks))]
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.n = 0
}
