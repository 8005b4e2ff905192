package client

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// Short payloads of process memory travel in the work request, as if the application had set SendInline: the daemon
// needs a system call to read memory of this process. A payload is copied only if the daemon could send it. All other
// requests go to the daemon with their SGL, so that they complete as they would without the copy.

// leastInline is the inline room that each QP has. A slot with an SGE has it anyway, as it is of whole cache lines.
const leastInline = 64

// region is process memory of a device that posts may copy.
type region struct {
	pd   abi.Handle
	iova uint64
	buf  []byte
}

// regions are the regions of process memory of a device, by L_Key. QPs keep copies of those that they have used last,
// which hold until the generation changes.
type regions struct {
	generation atomic.Uint64
	mu         sync.Mutex
	byKey      map[ib.Key]*region
}

// add makes r the region of a key. An older one of that key is closed at the daemon.
func (s *regions) add(key ib.Key, r *region) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey == nil {
		s.byKey = map[ib.Key]*region{}
	}
	s.byKey[key] = r
	s.generation.Add(1)
}

// remove undoes add. There may be no r.
func (s *regions) remove(key ib.Key, r *region) {
	if r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key] == r {
		delete(s.byKey, key)
	}
	s.generation.Add(1)
}

func (s *regions) get(key ib.Key) (r *region, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key], s.generation.Load()
}

// shorts is a QP's part of that. Its owner guards it.
type shorts struct {
	regions *regions
	pd      abi.Handle
	room    int
	found   [4]struct {
		generation uint64
		key        ib.Key
		region     *region // nil: none that may be copied
	}
	wr    ib.SendWR
	bytes []byte
}

// inlined returns a request that is like wr and has its payload inline, or wr itself. The request and its payload hold
// until the next call.
func (s *shorts) inlined(wr *ib.SendWR) *ib.SendWR {
	if !mayCopy(wr) || !s.copy(wr.SGL) {
		return wr
	}
	s.wr = *wr
	s.wr.Flags |= ib.SendInline
	s.wr.SGL, s.wr.Inline = nil, s.bytes
	return &s.wr
}

// mayCopy reports whether a request's payload goes to the peer as it is now. With a fence it may be the result of a
// READ before.
func mayCopy(wr *ib.SendWR) bool {
	switch wr.Opcode {
	case ib.WRSend, ib.WRSendImm, ib.WRSendInv, ib.WRWrite, ib.WRWriteImm:
		return wr.Flags&(ib.SendFence|ib.SendInline) == 0 && len(wr.Inline) == 0
	}
	return false
}

// copy gathers a payload in s.bytes, and reports whether it did. Pieces of length 0 count for nothing, whatever their
// key (IBTA 10.8.3.2).
func (s *shorts) copy(sgl []ib.SGE) bool {
	s.bytes = s.bytes[:0]
	for i := range sgl {
		e := &sgl[i]
		if e.Length == 0 {
			continue
		}
		if uint64(e.Length) > uint64(s.room-len(s.bytes)) {
			return false
		}
		b := s.find(e)
		if b == nil {
			return false
		}
		s.bytes = append(s.bytes, b...)
	}
	return len(s.bytes) > 0
}

// find returns the memory of an SGE; nil if the daemon has to decide about it.
func (s *shorts) find(e *ib.SGE) []byte {
	f := &s.found[e.LKey>>8%ib.Key(len(s.found))]
	if f.key != e.LKey || f.generation != s.regions.generation.Load() {
		f.key = e.LKey
		f.region, f.generation = s.regions.get(e.LKey)
	}
	r := f.region
	if r == nil || r.pd != s.pd || e.Addr < r.iova {
		return nil
	}
	off := e.Addr - r.iova
	if n := uint64(len(r.buf)); off > n || uint64(e.Length) > n-off {
		return nil
	}
	return r.buf[off : off+uint64(e.Length)]
}
