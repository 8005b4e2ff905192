package server

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/client"
)

// An arena is memory of a client, part of which is registered at times as one region. It has an
// edge that is never registered, data to send, which nobody writes, slots for data that comes,
// words for atomics, and another edge. Edges, and slots that no request names, consist of the byte
// unwritten.
type arena struct {
	owner   *walkClient
	num     int
	mem     []byte
	private bool   // memory of the process
	mr      *thing // nil while it is not registered
	pd      *thing
	slots   [arenaSlots]slot
	words   [arenaWords]*word
}

const (
	arenaEdge   = 104 // a multiple of 8, as words must be aligned
	arenaSource = 12 << 10
	slotBytes   = 4 << 10
	arenaSlots  = 8
	wordBytes   = 8
	arenaWords  = 4
	wordsAt     = arenaEdge + arenaSource + arenaSlots*slotBytes
	arenaBytes  = wordsAt + arenaWords*wordBytes + arenaEdge
	unwritten   = 0xA5
)

// slot is a place for the data of one request.
type slot struct {
	arena *arena
	at    int
	of    *post // nil if it is free
}

// newArenas gives a client memory: two arenas in a memfd, and two in memory of the process.
func (c *walkClient) newArenas() {
	shared, err := client.Alloc(2 * arenaBytes)
	must(c.t, err)
	private, err := unix.Mmap(-1, 0, 2*arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(c.t, err)
	c.cleanup = append(c.cleanup, func() {
		must(c.t, client.Free(shared))
		must(c.t, unix.Munmap(private))
	})
	for i := range 2 {
		c.newArena(shared[i*arenaBytes:][:arenaBytes], false)
		c.newArena(private[i*arenaBytes:][:arenaBytes], true)
	}
}

func (c *walkClient) newArena(mem []byte, private bool) {
	a := &arena{owner: c, num: len(c.walkWorld.arenas), mem: mem, private: private}
	for i := range mem {
		mem[i] = unwritten
	}
	for i := range a.source() {
		a.source()[i] = a.pattern(i)
	}
	for i := range a.slots {
		a.slots[i] = slot{arena: a, at: arenaEdge + arenaSource + i*slotBytes}
	}
	a.resetWords()
	c.arenas = append(c.arenas, a)
	c.walkWorld.arenas = append(c.walkWorld.arenas, a)
}

func (a *arena) source() []byte { return a.mem[arenaEdge:][:arenaSource] }

func (a *arena) pattern(i int) byte { return byte(i*7 + i>>8*13 + a.num*31 + 1) }

// region is the part that may be registered.
func (a *arena) region() []byte { return a.mem[arenaEdge : len(a.mem)-arenaEdge] }

// addr returns the address at which requests name an offset in mem.
func (a *arena) addr(at int) uint64 { return a.mr.value.(ib.MR).Addr() + uint64(at-arenaEdge) }

func (a *arena) key() ib.Key { return a.mr.value.(ib.MR).LKey() }

func (s *slot) bytes() []byte { return s.arena.mem[s.at:][:slotBytes] }

func (s *slot) sge() ib.SGE {
	return ib.SGE{Addr: s.arena.addr(s.at), Length: slotBytes, LKey: s.arena.key()}
}

// free ends the use of a slot by a request.
func (s *slot) free() {
	s.of = nil
	for i := range s.bytes() {
		s.bytes()[i] = unwritten
	}
}

// revoked notes that the region is no longer registered: whatever its slots were used for, they
// must not change any more.
func (a *arena) revoked() {
	if s := a.owner.stalled; s != nil && s.arena == a {
		a.owner.endStall(true)
	}
	a.owner.endOpenings(func(o *opening) bool { return o.mr == a.mr })
	a.mr, a.pd = nil, nil
	for i := range a.slots {
		a.slots[i].free()
	}
	a.checkWords()
	a.resetWords()
}

// isUnwritten reports whether nobody has written to b.
func isUnwritten(b []byte) bool { return bytes.Count(b, []byte{unwritten}) == len(b) }

// checkMemory checks all that nobody may write to.
func (w *walkWorld) checkMemory() {
	for _, a := range w.arenas {
		if !isUnwritten(a.mem[:arenaEdge]) || !isUnwritten(a.mem[len(a.mem)-arenaEdge:]) {
			w.t.Errorf("arena %d: memory that was never registered has changed", a.num)
		}
		for i, b := range a.source() {
			if b != a.pattern(i) {
				w.t.Errorf("arena %d: data to send has changed at %d: %#x, want %#x", a.num, i, b, a.pattern(i))
				break
			}
		}
		a.checkWords()
		for i := range a.slots {
			if s := &a.slots[i]; s.of == nil && !isUnwritten(s.bytes()) {
				w.t.Errorf("arena %d: slot %d, which no request names, has changed", a.num, i)
			}
		}
	}
}

// registered returns the arenas that are registered in a PD.
func (c *walkClient) registered(pd *thing) (list []*arena) {
	for _, a := range c.arenas {
		if a.mr != nil && a.pd == pd {
			list = append(list, a)
		}
	}
	return list
}

// recvSlots is how many slots of an arena receives may take. The others are left to WRITEs and READs.
const recvSlots = 5

// take returns up to n free slots of arenas for p.
func (c *walkClient) take(p *post, list []*arena, n int) []*slot {
	return c.takeOf(arenaSlots, p, list, n)
}

// takeOf is take of the first slots of each arena.
func (c *walkClient) takeOf(first int, p *post, list []*arena, n int) (slots []*slot) {
	for range n {
		if len(list) == 0 {
			break
		}
		a := list[c.n(len(list))]
		s := &a.slots[c.n(first)]
		if s.of != nil {
			continue
		}
		if !isUnwritten(s.bytes()) {
			c.t.Errorf("arena %d: slot at %d, which no request names, has changed", a.num, s.at)
		}
		s.of = p
		slots = append(slots, s)
	}
	return slots
}

// gather returns an SGL of up to n bytes of data to send, in up to three pieces, and the data.
func (c *walkClient) gather(pd *thing, n int) (sgl []ib.SGE, data []byte) {
	list := c.registered(pd)
	if len(list) == 0 {
		return nil, nil
	}
	for range 1 + c.n(3) {
		a := list[c.n(len(list))]
		size := min(c.n(n+1), n-len(data), arenaSource)
		at := c.n(arenaSource - size + 1)
		sgl = append(sgl, ib.SGE{Addr: a.addr(arenaEdge + at), Length: uint32(size), LKey: a.key()})
		data = append(data, a.source()[at:][:size]...)
	}
	return sgl, data
}
