package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// This file is the flight recorder. Each QP that has sent or received something keeps its last packets (headers only),
// requests, completions, timers and changes of state in a ring of fixed size, so that a failure can be told as a story
// afterwards, without a capture that somebody would have had to start before. A record is written in place by the owner
// of the QP, with the time of its input.

// recordsMost is how many records a ring has: with its header it fills 8 KiB, a size class of the allocator.
const recordsMost = 255

// Ring is the recorder of a QP. Its owner is that of the QP, also when the QP has given it up.
type Ring struct {
	next     uint16 // where the next record goes
	received uint16 // where the latest received packet is
	full     bool   // the records behind next are older ones
	holder   int32  // index in Recorders.holders
	_        [20]byte
	records  [recordsMost]Record
}

func (r *Ring) add() *Record {
	rec := &r.records[r.next]
	if r.next++; r.next == recordsMost {
		r.next, r.full = 0, true
	}
	return rec
}

// last returns the latest record, or one before it: at is 1 for the latest.
func (r *Ring) last(at uint16) *Record { return &r.records[(r.next+recordsMost-at)%recordsMost] }

// Records returns a copy of the records, oldest first. Those of kinds that have no exported name belong to the record
// before them (Record.Packet).
func (r *Ring) Records() (list []Record) {
	if r == nil {
		return nil
	}
	if r.full {
		list = append(list, r.records[r.next:]...)
	}
	return append(list, r.records[:r.next]...)
}

// Recorders bounds the recorders of the QPs of one owner: with as many QPs as have one, a QP without takes the place of
// one that has been idle for long, or has none.
type Recorders struct {
	most    int
	holders []*QP
	hand    int        // the next holder to look at
	retry   ib.Instant // when holders may be looked at again
}

// NewRecorders returns an empty set of at most so many recorders. Each takes 8 KiB from its QP's first packet on until
// the QP is reset or released.
func NewRecorders(most int) *Recorders { return &Recorders{most: most} }

// When all recorders are taken: how long a QP must have been idle to lose its own, how many are looked at for one, and
// how long to wait if none of them has been.
const (
	recorderIdle  = ib.Instant(1e9)
	recorderLooks = 8
	recorderRetry = ib.Instant(10e6)
)

// open gives q a recorder, if it can have one.
func (r *Recorders) open(q *QP) *Ring {
	if r == nil || len(r.holders) >= r.most && !r.evict(q.now) {
		return nil
	}
	q.rec = &Ring{holder: int32(len(r.holders))}
	r.holders = append(r.holders, q)
	*q.rec.add() = Record{At: q.now, Kind: RecordState, Code: uint8(q.state), Key: uint32(q.state)}
	return q.rec
}

// evict takes the recorder of the QP that has been idle for longest among a few.
func (r *Recorders) evict(now ib.Instant) bool {
	if r.most == 0 || now < r.retry {
		return false
	}
	idle, since := -1, now-recorderIdle
	for range min(recorderLooks, len(r.holders)) {
		r.hand = (r.hand + 1) % len(r.holders)
		if at := r.holders[r.hand].rec.last(1).At; at <= since {
			idle, since = r.hand, at
		}
	}
	if idle < 0 {
		r.retry = now + recorderRetry
		return false
	}
	r.release(r.holders[idle])
	return true
}

func (r *Recorders) release(q *QP) {
	i, end := q.rec.holder, len(r.holders)-1
	r.holders[i] = r.holders[end]
	r.holders[i].rec.holder = i
	r.holders[end] = nil
	r.holders = r.holders[:end]
	q.rec = nil
}

// Recorder returns the QP's recorder; nil if it has none. It keeps what it has when the QP gives it up.
func (q *QP) Recorder() *Ring { return q.rec }

// ReleaseRecorder gives the recorder up, for owners that end the QP. A reset does it, too.
func (q *QP) ReleaseRecorder() {
	if q.rec != nil {
		q.cfg.Limits.Recorders.release(q)
	}
}

// recorder returns the QP's recorder, which it opens if need be; nil if there is none to be had.
func (q *QP) recorder() *Ring {
	if q.rec != nil {
		return q.rec
	}
	return q.cfg.Limits.Recorders.open(q)
}

// recordSent records packets that NextPackets has built.
func (q *QP) recordSent(now ib.Instant, out []TxPacket) {
	if len(out) == 0 {
		return
	}
	if r := q.recorder(); r != nil {
		for i := range out {
			r.sent(now, &out[i])
			r.sentMessages(out[i].messages)
		}
	}
}

func (r *Ring) sent(now ib.Instant, p *TxPacket) {
	rec := r.add()
	more := p.Train
	if p.messages != nil {
		more = 0
	}
	rest := rec.setPacket(RecordSent, now, &p.Packet, p.Len, more)
	if p.Again {
		rec.psn |= flagAgain
	}
	if rest {
		r.add().setHeaders(&p.Packet)
	}
}

// sentMessages records the messages behind the packet of the latest record.
func (r *Ring) sentMessages(list []sendWQE) {
	rec := *r.last(1)
	for i := range list {
		rec.Addr = list[i].wr.RemoteAddr
		rec.psn = rec.psn&^uint32(ib.PSNMask) | uint32(rec.PSN().Add(1))
		*r.add() = rec
	}
}

// recordReceived records a packet that a state with a peer has received, and more that are like it. In ERR the story
// has ended: what comes then does not overwrite it.
func (q *QP) recordReceived(p *wire.Packet, more int) {
	if !q.hasPeer() {
		return
	}
	r := q.recorder()
	if r == nil {
		return
	}
	r.received = r.next
	rec := r.add()
	rest := rec.setPacket(RecordReceived, q.now, p, len(p.Payload), more)
	if p.ECN == wire.CE {
		rec.psn |= flagCE
	}
	if rest {
		r.add().setHeaders(p)
	}
}

// recordAlike records frames of size bytes, of which p is the first (HandleAlike). Packets whose addresses follow each
// other share a record, up to one that asks for an ACK.
func (q *QP) recordAlike(p *wire.Packet, frames []byte, size int) {
	head, each := p.Opcode.HeaderLen(), uint64(len(p.Payload))
	for len(frames) > 0 {
		n := 1
		if head == wire.BTHLen {
			n = len(frames) / size
		} else {
			p.RETH.VA, p.AckReq = wire.AlikeVA(frames), wire.AlikeAsks(frames)
			for va := p.RETH.VA; n*size < len(frames) && !wire.AlikeAsks(frames[n*size:]); n++ {
				if va += each; wire.AlikeVA(frames[n*size:]) != va {
					break
				}
			}
		}
		q.recordReceived(p, n-1)
		p.PSN, frames = p.PSN.Add(n), frames[n*size:]
	}
}

// hasPeer reports whether the state is one in which the QP takes packets.
func (q *QP) hasPeer() bool { return q.state >= ib.StateRTR && q.state != ib.StateErr }

// judge records what became of the latest received packet.
func (q *QP) judge(v Verdict) {
	if q.rec == nil || !q.hasPeer() {
		return
	}
	if rec := &q.rec.records[q.rec.received]; rec.Kind == RecordReceived {
		rec.psn = rec.psn&(1<<verdictShift-1) | uint32(v)<<verdictShift
	}
}

// recordPosted records a request that was taken from the send queue.
func (q *QP) recordPosted(wr *ib.SendWR) {
	if !rules[q.state].resend { // it is flushed
		return
	}
	r := q.recorder()
	if r == nil {
		return
	}
	n := uint32(len(wr.Inline))
	for i := range wr.SGL {
		n += wr.SGL[i].Length
	}
	r.add().set(q.now, RecordPosted, uint8(wr.Opcode), wr.ID, 0, n, 0)
}

// recordCompletion records a completion. Requests that are flushed behind each other share a record, and so do
// receives: an application may post both for ever.
func (q *QP) recordCompletion(wc *ib.WC) {
	r := q.rec
	if r == nil {
		return
	}
	key, code := uint32(wc.Status)|uint32(ib.ReasonOf(wc.VendorErr))<<16, uint8(wc.Opcode)
	for at := uint16(1); at <= 2 && wc.Status == ib.WCWRFlushErr; at++ {
		if last := r.last(at); last.Kind == RecordCompleted && last.Key == key && last.Code == code {
			last.Length = max(last.Length+1, last.Length) // which stays at its most
			return
		}
	}
	r.add().set(q.now, RecordCompleted, code, wc.ID, key, wc.ByteLen, 1)
}

// recordState records that the QP changes its state.
func (q *QP) recordState(to ib.QPState) {
	if q.rec != nil && to != q.state {
		*q.rec.add() = Record{At: q.now, Kind: RecordState, Code: uint8(to), Key: uint32(q.state)}
	}
}

// recordTimer records that a timer has ended, and that the requester does something about it.
func (q *QP) recordTimer(code uint8, left int) {
	if q.rec != nil {
		*q.rec.add() = Record{At: q.now, Kind: RecordTimer, Code: code, Extra: uint32(left), psn: uint32(q.req.win.una)}
	}
}

// recordCause records why the QP fails, or why it refuses a request.
func (q *QP) recordCause(kind RecordKind, c *ib.Cause) {
	if q.rec != nil {
		*q.rec.add() = Record{At: q.now, Kind: kind, Code: uint8(c.Reason), Key: uint32(c.Op), psn: uint32(c.PSN)}
	}
}
