package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
)

// Fetch is a read of memory that is not direct: the owner has a goroutine that may block
// fill Buf with the bytes of SGL. The QP uses neither before Fetched is called.
type Fetch struct {
	ID uint64
	mr.Message
}

// Do executes the fetch. Errors are those of mr.Gather.
func (f *Fetch) Do() error { return mr.Gather(f.Buf, f.SGL, 0) }

// Messages are fetched in chunks; further chunks are fetched while one is being sent.
// chunkBytes is a multiple of every path MTU, so no packet spans two chunks.
// A QP with little staging memory has one chunk of each direction, of leastChunk bytes.
const (
	chunkBytes = 64 << 10
	leastChunk = 4 << 10
	numChunks  = 4 // of each direction
)

// chunk is a piece of a message: as long as fetchTable.each or shorter, at a multiple of that.
type chunk struct {
	state  chunkState
	owner  uint32 // the message
	index  uint32 // position in the message, in chunks
	used   uint32 // fetchTable.clock when it was last asked for
	serial uint32 // of the latest fetch, part of its ID
	sgl    mr.SGL // what it is fetched from
	buf    []byte // of fetchTable.each bytes, made when first needed
	n      int    // bytes in use
}

type chunkState uint8

const (
	chunkFree chunkState = iota
	chunkFetching
	chunkReady
	chunkOrphan // being fetched, for a message that has ended
)

// direction distinguishes the two kinds of messages sent from memory: requests, whose
// chunk.owner is their slot, and READ responses, whose owner is their first PSN.
type direction uint8

const (
	requests direction = iota
	responses
	numDirections
)

// fetchTable is the staging memory of a QP. It is allocated when the QP first sends from
// memory that is not direct.
type fetchTable struct {
	chunks [numDirections][numChunks]chunk
	each   uint32 // bytes of a chunk
	most   int    // chunks of each direction that may be in use
	clock  uint32
	list   []Fetch // made, not yet taken by Effects
	taken  bool    // list was handed out; start afresh
}

// stage returns the fetchTable, which the first call allocates.
func (q *QP) stage() *fetchTable {
	if q.fetch == nil {
		q.fetch = &fetchTable{each: chunkBytes, most: numChunks, list: make([]Fetch, 0, numDirections*numChunks)}
		if !q.staged() {
			q.fetch.each, q.fetch.most = leastChunk, 1
		}
	}
	return q.fetch
}

// find returns the chunk that holds a piece of a message or is being fetched for it; nil
// if there is none.
func (t *fetchTable) find(d direction, owner, index uint32) *chunk {
	for i := range t.chunks[d] {
		c := &t.chunks[d][i]
		if c.owner == owner && c.index == index && (c.state == chunkReady || c.state == chunkFetching) {
			return c
		}
	}
	return nil
}

// bytes returns the message from byte off on, up to the end of the chunk; nil if the
// chunk is not fetched.
func (t *fetchTable) bytes(d direction, owner, off uint32) []byte {
	if c := t.find(d, owner, off/t.each); c != nil && c.state == chunkReady {
		return c.buf[off%t.each : c.n : c.n]
	}
	return nil
}

// ready reports whether the message in sgl, length bytes long, can be sent from byte
// off on. It starts fetches of the chunk at off and of those behind it, if necessary.
func (t *fetchTable) ready(d direction, owner uint32, sgl mr.SGL, off, length uint32) bool {
	t.clock++
	t.ahead(d, owner, sgl, off, length, t.most)
	c := t.find(d, owner, off/t.each)
	return c != nil && c.state == chunkReady
}

// ahead starts fetches of up to most chunks of a message from byte off on. It does not
// replace chunks that were asked for at the present clock. It returns how many of most
// are left for other messages, 0 if there is no room.
func (t *fetchTable) ahead(d direction, owner uint32, sgl mr.SGL, off, length uint32, most int) int {
	for index := off / t.each; most > 0 && uint64(index)*uint64(t.each) < uint64(length); index++ {
		c := t.find(d, owner, index)
		if c == nil {
			if c = t.victim(d); c == nil {
				return 0
			}
			t.start(d, c, owner, index, sgl, min(length-index*t.each, t.each))
		}
		c.used = t.clock
		most--
	}
	return most
}

// victim returns a free chunk or the least recently used one; nil if all are being
// fetched or were asked for at the present clock.
func (t *fetchTable) victim(d direction) (v *chunk) {
	for i := range t.chunks[d][:t.most] {
		switch c := &t.chunks[d][i]; {
		case c.state == chunkFree:
			return c
		case c.state != chunkReady || c.used == t.clock:
		case v == nil || int32(c.used-v.used) < 0:
			v = c
		}
	}
	return v
}

// start starts a fetch of n bytes of a message into c.
func (t *fetchTable) start(d direction, c *chunk, owner, index uint32, sgl mr.SGL, n uint32) {
	if c.buf == nil {
		c.buf = make([]byte, t.each)
	}
	c.state, c.owner, c.index, c.n = chunkFetching, owner, index, int(n)
	c.serial++
	c.sgl = sgl.AppendPart(c.sgl[:0], uint64(index)*uint64(t.each), int(n))
	if t.taken {
		t.list, t.taken = t.list[:0], false
	}
	for i := range t.chunks[d] {
		if c == &t.chunks[d][i] {
			id := uint64(c.serial)<<8 | uint64(d)*numChunks | uint64(i)
			t.list = append(t.list, Fetch{ID: id, Message: mr.Message{SGL: c.sgl, Buf: c.buf[:n]}})
		}
	}
}

// forget releases the chunks of a message that has ended.
func (t *fetchTable) forget(d direction, owner uint32) {
	if t == nil {
		return
	}
	for i := range t.chunks[d] {
		switch c := &t.chunks[d][i]; {
		case c.owner != owner:
		case c.state == chunkReady:
			c.state = chunkFree
		case c.state == chunkFetching:
			c.state = chunkOrphan
		}
	}
}

// reset frees the chunks. Fetches that are under way keep their buffers, and their
// results will be ignored.
func (t *fetchTable) reset() {
	if t == nil {
		return
	}
	for d := range t.chunks {
		for i := range t.chunks[d] {
			c := &t.chunks[d][i]
			*c = chunk{serial: c.serial + 1}
		}
	}
	clear(t.list)
	t.list = t.list[:0]
}

// done ends fetch id and returns its chunk; nil if the chunk no longer waits for it.
func (t *fetchTable) done(id uint64) (c *chunk, d direction) {
	d = direction(id & 0xFF / numChunks)
	if t == nil || d >= numDirections {
		return nil, d
	}
	c = &t.chunks[d][id%numChunks]
	switch {
	case uint64(c.serial) != id>>8:
		return nil, d
	case c.state == chunkOrphan:
		c.state = chunkFree
		return nil, d
	case c.state != chunkFetching:
		return nil, d
	}
	return c, d
}

// take returns the list, but not a second time.
func (t *fetchTable) take() []Fetch {
	if t == nil || t.taken {
		return nil
	}
	t.taken = true
	return t.list
}

// Fetched reports that a fetch has ended: done, or failed with err. A request whose
// memory cannot be read fails; a peer's READ of such memory is refused.
func (q *QP) Fetched(now ib.Instant, id uint64, err error) {
	q.now = now
	c, d := q.fetch.done(id)
	switch {
	case c == nil:
		q.send = true // the chunk may be free now for a packet that waits for one
		return
	case err == nil:
		c.state = chunkReady
		q.send = true
		return
	}
	c.state = chunkFree
	if d == requests {
		q.req.notFetched(c.owner)
	} else {
		q.resp.notFetched(now, c.owner)
	}
	q.settle()
}

// notFetched fails the request in slot i. If the request has not begun, the chunk is
// fetched again when it begins.
func (r *requester) notFetched(i uint32) {
	switch {
	case i-r.oldest >= r.tail-r.oldest || !r.slot(i).begun || r.q.state == ib.StateErr:
	case r.q.svc.reliable:
		r.failInTurn(i)
	default:
		r.failMemory(i)
	}
}

// notFetched refuses the READ that begins at psn, if its responses are next to be sent;
// otherwise the chunk is fetched again when they are.
func (r *responder) notFetched(now ib.Instant, psn uint32) {
	if s := r.res.next(); s != nil && s.kind == resRead && uint32(s.first) == psn {
		r.revoked(now, s)
	}
}

// ready reports whether the packet with PSN psn of a message that has begun can be
// built: its payload is direct memory, or was fetched.
func (s *sendWQE) ready(q *QP, psn ib.PSN) bool {
	if !s.slow {
		return true
	}
	off := uint32(psn.Sub(s.first) * q.mtu())
	return q.stage().ready(requests, s.index, s.sgl, off, s.length)
}

// lookAhead starts fetches for the messages behind the one at cur, whose packet at psn
// is next, as far as there are chunks. The application leaves their memory alone, but
// lookAhead stops at a fence, since a READ or an atomic may still write to that memory,
// and at requests other than SEND and WRITE, since a key may be invalidated.
func (r *requester) lookAhead(psn ib.PSN) {
	s := r.slot(r.cur)
	off := psn.Sub(s.first) * r.q.mtu()
	if !s.slow {
		return
	}
	t := r.q.stage()
	each := int(t.each)
	if off%each != 0 {
		return
	}
	room := t.most - (int(s.length)-off+each-1)/each
	for i := r.cur + 1; i != r.tail && room > 0; i++ {
		s := r.slot(i)
		op := &sendOps[s.wr.Opcode]
		if s.wr.Flags&ib.SendFence != 0 || op.kind != kindPush || s.invalid != ib.WCSuccess ||
			s.resolve(r.q, op) != ib.WCSuccess {
			return
		}
		if s.slow {
			room = t.ahead(requests, s.index, s.sgl, 0, s.length, room)
		}
	}
}

// ready reports whether the next packet of a READ's response can be built, likewise.
func (r *responder) ready(s *resource) bool {
	if !s.slow() {
		return true
	}
	off := uint32(s.cursor.Sub(s.first) * int(r.q.attr.PathMTU))
	return r.q.stage().ready(responses, uint32(s.first), s.span[:], off, s.span[0].Len)
}

// slow reports whether the data of the response must be fetched.
func (s *resource) slow() bool {
	return s.kind == resRead && s.span[0].Len > 0 && !s.span[0].R.Direct()
}

// staged sets the payload to fetched bytes, which go on to the end of the chunk.
func (tx *TxPacket) staged(bytes []byte) { tx.SGL, tx.Inline = nil, bytes }
