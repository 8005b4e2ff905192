package decode

import (
	"hash/maphash"

	"github.com/goroce/goroce/roce/trace/capfile"
)

// copies finds packets that were captured twice because both ends are on the capturing host: once sent, once received.
// The received copy has the bytes of the sent one, up to the ICRC, which covers the headers that do not change on the
// way. A packet that was received more often than it was sent is a duplicate that the network has made, and no copy.
//
// Either copy may be the first in the file: sender and receiver are different threads. Memory is bounded: only packets
// that are at most 32,768 to 65,536 packets apart are found to be copies.
type copies struct {
	seed      maphash.Seed
	seen, old map[uint64]*twin
}

// copiesKeep is the number of packets after which older ones begin to be forgotten.
const copiesKeep = 1 << 15

// twin is what was seen of packets with the same bytes.
type twin struct {
	num     int  // the latest packet that has no copy so far
	excess  int  // how many more were sent than received
	matched bool // some have a copy
}

// add returns the number of the packet that p is the other copy of, 0 if p is no copy.
func (c *copies) add(p *packet) (of int) {
	if p.dir == capfile.DirUnknown || !p.located {
		return 0
	}
	step := 1
	if p.dir == capfile.Received {
		step = -1
	}
	t := c.twin(p)
	switch {
	case t.excess*step < 0:
		of, t.matched = t.num, true
	case step < 0 && t.matched:
		return 0
	default:
		t.num = p.num
	}
	t.excess += step
	return of
}

// twin returns what was seen of packets with the bytes of p.
func (c *copies) twin(p *packet) *twin {
	if c.seen == nil {
		c.seed, c.seen = maphash.MakeSeed(), map[uint64]*twin{}
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	o := &p.frame.Outer
	for _, b := range [][]byte{o.Src[:], o.Dst[:], {byte(o.SrcPort >> 8), byte(o.SrcPort)}, p.frame.Transport} {
		_, _ = h.Write(b) // never fails
	}
	key := h.Sum64()
	t := c.seen[key]
	if t == nil {
		if t = c.old[key]; t == nil {
			t = &twin{}
		}
		if len(c.seen) == copiesKeep {
			c.seen, c.old = make(map[uint64]*twin, copiesKeep), c.seen
		}
		c.seen[key] = t
	}
	return t
}
