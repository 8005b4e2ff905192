package server

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// word is 8 bytes of an arena that only atomics write to. Only one QP at a time has atomics to a word
// under way, so the result of each is known when it is posted. A shared word is different: all QPs add 1
// to it at any time, and each of these atomics must return another value.
type word struct {
	arena *arena
	at    int

	of      *walkQP // whose atomics are under way; nil if none are
	pending int
	value   uint64 // when all of them are done
	lost    bool   // one of them has failed: nobody knows whether it was done

	shared   bool
	added    uint64          // how many atomics were posted
	returned map[uint64]bool // what those that are complete have returned
}

// wordStart is the value of a word until the first atomic.
const wordStart = 1 << 40

// resetWords gives an arena new words. Atomics that are under way refer to the old ones.
func (a *arena) resetWords() {
	for i := range a.words {
		w := &word{arena: a, at: wordsAt + i*wordBytes, value: wordStart, shared: i == 0, returned: map[uint64]bool{}}
		a.words[i] = w
		binary.NativeEndian.PutUint64(w.bytes(), wordStart)
	}
}

func (w *word) bytes() []byte { return w.arena.mem[w.at:][:wordBytes] }

// checkWords checks the words whose values are known.
func (a *arena) checkWords() {
	for _, w := range a.words {
		v := binary.NativeEndian.Uint64(w.bytes())
		switch {
		case w.shared && (v-wordStart < uint64(len(w.returned)) || v-wordStart > w.added):
			a.owner.t.Errorf("arena %d: the shared word is %#x after %d of %d atomics", a.num, v, len(w.returned),
				w.added)
		case !w.shared && w.pending == 0 && !w.lost && v != w.value:
			a.owner.t.Errorf("arena %d: the word at %d is %#x, want %#x", a.num, w.at, v, w.value)
		}
	}
}

// fillAtomic fills in an atomic to a word of the peer.
func (c *walkClient) fillAtomic(p *post, wr *ib.SendWR) bool {
	right := ib.RemoteAtomic
	if p.verb == ib.WRAtomicWrite {
		right = ib.RemoteWrite
	}
	list := c.aims(p, right)
	if !p.qp.reliable() || len(list) == 0 {
		return false
	}
	a := list[c.n(len(list))]
	w := a.words[c.n(arenaWords)]
	if w.lost || w.of != nil && w.of != p.qp || w.shared && p.verb != ib.WRFetchAdd {
		return false
	}
	if p.verb == ib.WRAtomicWrite {
		wr.SGL, p.message = c.sourceWord(p)
	} else if p.slots = c.take(p, c.registered(p.qp.pd), 1); len(p.slots) > 0 {
		wr.SGL, p.sizes, p.message = []ib.SGE{p.slots[0].sge()}, []int{wordBytes}, &walkMessage{by: p}
		wr.SGL[0].Length = wordBytes
	}
	if p.message == nil {
		return false
	}
	w.expect(c, p, wr)
	wr.RemoteAddr, wr.RKey = c.target(p, a, w.at, wordBytes, right)
	return true
}

// sourceWord returns 8 bytes of data to send.
func (c *walkClient) sourceWord(p *post) ([]ib.SGE, *walkMessage) {
	list := c.registered(p.qp.pd)
	if len(list) == 0 {
		return nil, nil
	}
	a, at := list[c.n(len(list))], c.n(arenaSource-wordBytes+1)
	return []ib.SGE{{Addr: a.addr(arenaEdge + at), Length: wordBytes, LKey: a.key()}},
		&walkMessage{by: p, data: a.source()[at:][:wordBytes]}
}

// expect draws the operands of an atomic, and notes what the atomic must return and what becomes of the word.
func (w *word) expect(c *walkClient, p *post, wr *ib.SendWR) {
	old, next := w.value, uint64(0)
	switch {
	case w.shared:
		wr.Swap = 1
	case p.verb == ib.WRFetchAdd:
		wr.Swap = uint64(c.n(1000))
		next = old + wr.Swap
	case p.verb == ib.WRAtomicWrite:
		next = binary.NativeEndian.Uint64(p.message.data)
	default:
		wr.Compare, wr.Swap, next = old, uint64(c.n(1000)), old
		if c.one(3) {
			wr.Compare++ // so nothing is stored
		} else {
			next = wr.Swap
		}
	}
	p.start = func() {
		w.of, w.value = p.qp, next
		w.pending++
		w.added++
	}
	if p.verb != ib.WRAtomicWrite {
		p.message.data = binary.NativeEndian.AppendUint64(nil, old)
	}
	p.end = func(ok bool) { w.done(c, p, ok) }
	if w.shared {
		p.start = func() { w.added++ }
		p.end = func(ok bool) { w.returnedTo(c, p, ok) }
	}
}

// done notes the end of an atomic.
func (w *word) done(c *walkClient, p *post, ok bool) {
	w.pending--
	w.lost = w.lost || !ok
	if w.pending == 0 && !w.lost {
		w.of = nil
	}
	if ok {
		c.totals.atomics++
	}
}

// returnedTo checks what a shared word was when an atomic added 1.
func (w *word) returnedTo(c *walkClient, p *post, ok bool) {
	s := p.slots[0]
	if !ok || s.of != p {
		return // what it has returned is not known
	}
	old := binary.NativeEndian.Uint64(s.bytes())
	if old-wordStart >= w.added || w.returned[old] {
		c.t.Errorf("%v: an atomic returns %#x, want one of %d, each once", p, old, w.added)
	}
	w.returned[old] = true
	p.message.data = s.bytes()[:wordBytes]
	c.totals.atomics++
}
