package roce

import (
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
)

// work is what waits for a worker: placements and fetches, and whose they are.
type work struct {
	writes []mr.Placement
	whose  []placer // of writes
	parts  []part
	data   arena // of writes
	gets   []qp.Fetch
	getOf  []*QP

	placed, got int // how many are done
}

// placer is the QP of a placement, and the parts that it has: a packet that goes on where
// the one before has ended is placed with it.
type placer struct {
	q           *QP
	first, last int // in parts, the last one excluded
}

// part is a packet's share of a placement.
type part struct {
	id uint64
	n  int // bytes
}

// finished reports whether all is done.
func (k *work) finished() bool { return k.placed == len(k.writes) && k.got == len(k.gets) }

// emptied returns k without what is in it.
func (k *work) emptied() work {
	clear(k.writes)
	clear(k.whose)
	clear(k.gets)
	clear(k.getOf)
	k.data.empty()
	return work{writes: k.writes[:0], whose: k.whose[:0], parts: k.parts[:0], data: k.data, gets: k.gets[:0], getOf: k.getOf[:0]}
}

// place appends a placement of q, with a copy of its data.
func (k *work) place(q *QP, p *mr.Placement) {
	data, goesOn := k.data.add(p.Data)
	k.parts = append(k.parts, part{p.ID, len(data)})
	if n := len(k.writes) - 1; goesOn && n >= 0 && k.whose[n].q == q {
		if w := &k.writes[n]; k.whose[n].last-k.whose[n].first < turnPlaces && w.Kind == mr.PlaceWrite && p.Kind == mr.PlaceWrite && w.R == p.R && w.Off+uint64(len(w.Data)) == p.Off {
			w.Data = w.Data[:len(w.Data)+len(data)]
			k.whose[n].last++
			return
		}
	}
	w := *p
	w.Data = data
	k.writes = append(k.writes, w)
	k.whose = append(k.whose, placer{q, len(k.parts) - 1, len(k.parts)})
}

// some returns how many of the placements that are left have so many parts together, but
// one at least if there is one.
func (k *work) some(parts int) int {
	n := k.placed
	for ; n < len(k.writes); n++ {
		if w := &k.whose[n]; n > k.placed && w.last-k.whose[k.placed].first > parts {
			break
		}
	}
	return n - k.placed
}

// answer appends the answers of placement i, which came out so. Where one of several
// parts fails each is done again alone: whose fault is it?
func (k *work) answer(list []answer, i int, out mr.Outcome) []answer {
	w, who := &k.writes[i], &k.whose[i]
	alone := out.Err != nil && who.last-who.first > 1
	off := 0
	for _, p := range k.parts[who.first:who.last] {
		a := answer{q: who.q, id: p.id, old: out.Old, err: out.Err}
		if alone {
			one := mr.Placement{Kind: w.Kind, R: w.R, Off: w.Off + uint64(off), Data: w.Data[off : off+p.n]}
			_, a.err = one.Do()
			off += p.n
		}
		list = append(list, a)
	}
	return list
}

// arena holds the data of placements that wait, in chunks.
type arena struct {
	chunks [][]byte
	n      int // in use; the last of them is being filled
}

const (
	arenaChunk = 64 << 10
	arenaKeeps = 64 // chunks, when it is empty
)

// add copies data, of a packet. goesOn says that the copy lies behind the one before.
// Its capacity may be extended over the next one.
func (a *arena) add(data []byte) (_ []byte, goesOn bool) {
	if goesOn = a.n > 0 && len(a.chunks[a.n-1])+len(data) <= arenaChunk; !goesOn {
		if a.n == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, 0, arenaChunk))
		}
		a.n++
	}
	c := &a.chunks[a.n-1]
	at := len(*c)
	*c = append(*c, data...)
	return (*c)[at:], goesOn
}

// empty forgets all data.
func (a *arena) empty() {
	clear(a.chunks[min(arenaKeeps, len(a.chunks)):])
	a.chunks = a.chunks[:min(arenaKeeps, len(a.chunks))]
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	a.n = 0
}
