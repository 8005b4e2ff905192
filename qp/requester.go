package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/wire"
)

// requester turns send requests into request packets. Its slots [oldest, tail) hold
// the requests that were fetched and have not completed; [oldest, cur) are sent, and
// cur is partly sent or not begun. The counters increase for ever and are masked when
// they index slots.
type requester struct {
	q     *QP
	slots []sendWQE
	mask  uint32

	oldest, cur, tail uint32

	toFlush uint32 // requests that flush is to complete: the fetched ones, then those in the ring

	win      window
	reads    readTable
	sel      *selective // nil unless responses are missing
	again    *resends   // nil until something is sent again to a peer that sends SACKs, or may be late
	probe    prober
	credits  credits
	ackReqs  ackReqs
	recovery goBackN

	placing int32  // unfinished placements of READ data and atomic results
	ssn     ib.PSN // send sequence number (IBTA 9.7.7.2) of the latest message begun

	unfetched     bool  // the ring may hold requests that fetch has not taken
	fetchBlocked  bool  // the next packet waits until its payload is fetched
	readBlocked   int16 // room in the congestion window, in packets, that the next READ waits for; 0: none waits
	drainReported bool  // checkDrained has reported that nothing is in flight in SQD
	twice         uint8 // wire.SACK.Twice of the latest SACK
	failedFlushed bool  // flush has completed the failed request: none of those behind it succeeds

	// unreadable is a request whose memory cannot be read. It fails once those before it
	// are complete; until then neither it nor any request behind it is sent.
	unreadable failure
	// failed is the request that took the QP to ERR or SQE, until it is flushed.
	failed failure
}

// credits is the responder's end-to-end flow control (IBTA 9.7.7.2).
type credits struct {
	counted bool   // the responder counts its receives, so that lsn applies
	lsn     ib.PSN // limit sequence number: it has receives for messages up to this SSN
}

// ackReqs says which packets asked for an ACK (AckReq).
type ackReqs struct {
	since  int32  // packets since the last AckReq
	latest ib.PSN // highest PSN for which an answer was requested
}

// failure is a request that is to fail.
type failure struct {
	set    bool
	status ib.WCStatus
	slot   uint32
}

// is reports whether slot i is to fail.
func (f *failure) is(i uint32) bool { return f.set && f.slot == i }

// askMost is how many request packets may be sent without asking for an ACK.
const askMost = 32

func (r *requester) init(q *QP) {
	r.q, r.recovery.r = q, r
	n, maxSGE, maxInline := q.cfg.SQ.Entries(), q.cfg.SQ.MaxSGE(), q.cfg.SQ.MaxInline()
	r.slots = make([]sendWQE, n)
	r.mask = uint32(n - 1)
	// Each slot gets a part of three arrays; the capacities keep it within that part.
	sges := make([]ib.SGE, n*maxSGE)
	inline := make([]byte, n*maxInline)
	spans := make(mr.SGL, n*maxSGE)
	for i := range r.slots {
		s := &r.slots[i]
		s.wr.SGL, sges = sges[:0:maxSGE], sges[maxSGE:]
		s.wr.Inline, inline = inline[:0:maxInline], inline[maxInline:]
		s.sgl, spans = spans[:0:maxSGE], spans[maxSGE:]
	}
}

func (r *requester) slot(i uint32) *sendWQE { return &r.slots[i&r.mask] }

// start initializes the requester for RTS.
func (r *requester) start() {
	a := &r.q.attr
	r.win.start(a.SQPSN)
	r.reads.size(a.MaxRdAtomic)
	r.q.arrivals.Requests.Until = a.SQPSN
	r.ssn, r.credits = 0, credits{}
	r.recovery.start()
	r.drainReported, r.twice = false, 0
	r.ackReqs = ackReqs{latest: a.SQPSN.Add(-1)}
	r.probe, r.unreadable.set = prober{}, false
}

// applyAttrs applies attributes that Modify may change in RTS and SQD.
func (r *requester) applyAttrs() {
	if r.q.state == ib.StateSQD && r.reads.empty() {
		r.reads.size(r.q.attr.MaxRdAtomic)
	}
	r.recovery.refill()
	r.drainReported = false
}

// fetchMost bounds the requests that are fetched and have not begun. A call of NextPackets
// begins about as many at most, whatever the ring holds.
const fetchMost = 64

// fetch copies new requests out of the ring, as long as fewer than fetchMost wait to begin.
func (r *requester) fetch() error {
	for r.tail-r.cur < fetchMost {
		if r.tail-r.oldest == uint32(len(r.slots)) { // the ring can have no others
			r.unfetched = false
			return nil
		}
		s := r.slot(r.tail)
		ok, err := r.q.cfg.SQ.Pop(&s.wr)
		if !ok {
			r.unfetched = false
			return err
		}
		s.invalid = ring.Status(err)
		s.begun, s.sent, s.acked, s.slow, s.late, s.index = false, false, false, false, 0, r.tail
		s.since = micros(r.q.now)
		r.tail++
		r.q.taken++
		r.q.recordPosted(&s.wr)
	}
	return nil
}

// next builds the next new packet, if the window, the responder's credits and resources,
// and the order of messages allow one.
func (r *requester) next(tx *TxPacket) bool {
	if r.unreadable.set || r.win.room() == 0 || !r.begin() {
		return false
	}
	s := r.slot(r.cur)
	op := &sendOps[s.wr.Opcode]
	if op.answered {
		return r.nextRead(s, tx)
	}
	if op.recv && r.outOfCredit(s) {
		return false
	}
	psn := r.win.nxt
	if r.fetchBlocked = !s.ready(r.q, psn); !r.fetchBlocked {
		s.packet(r.q, psn, tx)
	}
	r.lookAhead(psn)
	if r.fetchBlocked {
		return false
	}
	r.advance(s, 1)
	limited := op.recv && r.credits.counted && s.ssn.After(r.credits.lsn)
	r.askForACK(tx, s.sent || limited || r.win.room() == 0 || r.q.flow.full())
	return true
}

// begin advances cur to a message that has packets to send, and reports whether there
// is one. It executes requests that need no packet (LOCAL INVALIDATE, BIND MW) itself.
func (r *requester) begin() bool {
	for r.cur != r.tail && r.cur-r.oldest < begunMost {
		s := r.slot(r.cur)
		if !s.begun && !r.beginNext(s) {
			return false
		}
		if sendOps[s.wr.Opcode].kind != kindLocal {
			return true
		}
		s.sent = true
		r.cur++
		if r.q.svc.reliable { // QP.Sent completes those of unreliable services
			r.complete()
		}
	}
	return false
}

// begunMost bounds the requests that have begun and are not complete, and so what a single ACK or
// placement completes. A window of one-packet messages to a near peer has as many.
const begunMost = windowNear

// beginNext starts the message at cur. A message that cannot start waits until
// all before it are complete and fails then, so completions stay in order.
func (r *requester) beginNext(s *sendWQE) bool {
	if !rules[r.q.state].begin {
		return false
	}
	if s.wr.Flags&ib.SendFence != 0 && (!r.reads.empty() || r.placing > 0) {
		return false
	}
	if s.wr.Opcode == ib.WRLocalInv && r.oldest != r.cur {
		return false // requests before it may use the key
	}
	status := ib.WCLocQPOpErr
	switch {
	case s.invalid != ib.WCSuccess:
		status = s.invalid
	case SupportsSend(r.q.cfg.Type, s.wr.Opcode):
		status = s.begin(r.q, r.win.nxt, r.ssn.Add(1))
	}
	switch {
	case status == ib.WCSuccess && !r.spanHolds(s):
		s.begun = false
		return false
	case status == ib.WCSuccess:
		r.ssn = r.ssn.Add(s.messages())
		return true
	}
	if r.oldest == r.cur {
		r.fail(r.cur, status, s.explain(r.q, status))
	}
	return false
}

// spanMost bounds the PSNs of all requests that have begun and are not complete. PSNs can be
// compared only within half of their 2^24 (IBTA 9.7.2). Far fewer are in flight, but a request
// whose data is still being placed may stay incomplete long after the peer has answered.
const spanMost = 1 << 23

// spanHolds reports whether the message at cur may begin within spanMost. A message that is
// alone always may: the longest, 2^31 bytes, has spanMost PSNs at an MTU of 256.
func (r *requester) spanHolds(s *sendWQE) bool {
	if r.oldest == r.cur {
		return true
	}
	begun := int((r.win.nxt - r.slot(r.oldest).first) & ib.PSNMask)
	return begun+s.npsn <= spanMost
}

// advance records n PSNs of the message at cur as sent.
func (r *requester) advance(s *sendWQE, n int) {
	r.win.nxt = r.win.nxt.Add(n)
	r.q.flow.charge(n, s.cost)
	if r.win.nxt == s.last().Add(1) {
		s.sent = true
		r.cur++
	}
}

// nextRead builds the request packet of an atomic, ATOMIC WRITE or FLUSH, or of the next
// piece of a READ. A READ that is longer than what may be in flight is split into pieces,
// each with its own request packet: responses have no other flow control.
func (r *requester) nextRead(s *sendWQE, tx *TxPacket) bool {
	if r.reads.left() == 0 {
		return false
	}
	psn := r.win.nxt
	if r.fetchBlocked = !s.ready(r.q, psn); r.fetchBlocked {
		return false
	}
	left := s.from(psn)
	// Waiting for room for a large piece beats a small one now.
	least, most := r.q.flow.piece(r.q.now, s.cost, r.reads.left())
	want := min(left, least)
	switch room := r.q.flow.room(s.cost); {
	case r.win.room() < want && r.win.inFlight() > 0:
		return false
	case room < want && !r.q.flow.Idle():
		r.q.flow.limits()
		r.readBlocked = int16(want)
		return false
	}
	n := max(min(left, r.win.room(), r.q.flow.room(s.cost), most), 1)
	if psn != s.first {
		r.ssn = r.ssn.Add(1)
	}
	rd := r.reads.push(r.cur, psn, n)
	r.buildRead(rd, psn, rd.end(), tx)
	r.advance(s, n)
	return true
}

// buildRead builds the request packet for the responses of rd from psn up to end.
func (r *requester) buildRead(rd *readReq, psn, end ib.PSN, tx *TxPacket) {
	s := r.slot(rd.slot)
	if sendOps[s.wr.Opcode].kind != kindRead {
		s.single(r.q, tx)
	} else {
		mtu := uint32(r.q.attr.PathMTU)
		off := uint32(psn.Sub(s.first)) * mtu
		n := min(s.length-off, uint32(end.Sub(psn))*mtu)
		s.header(r.q, tx, wire.OpReadRequest, psn)
		tx.RETH = wire.RETH{VA: s.wr.RemoteAddr + uint64(off), RKey: s.wr.RKey, Len: n}
	}
	r.askForACK(tx, true)
	r.ackReqs.latest = laterPSN(r.ackReqs.latest, end.Add(-1))
}

// askForACK sets AckReq if must is set (the last packet of a message, or the last that
// may leave for now) and every askEvery packets: a responder acknowledges no other
// packets of SENDs and WRITEs.
func (r *requester) askForACK(tx *TxPacket, must bool) {
	r.ackReqs.since++
	if must || int(r.ackReqs.since) >= r.askEvery() {
		tx.AckReq = true
		r.ackReqs.since = 0
		r.ackReqs.latest = laterPSN(r.ackReqs.latest, tx.PSN)
	}
}

// askEvery is how many packets may be sent without AckReq. With an ACK for each quarter
// of the congestion window, more packets can leave while an ACK is on its way.
func (r *requester) askEvery() int {
	return min(askMost, max(r.q.flow.cwnd/4, 1))
}

func earlierPSN(a, b ib.PSN) ib.PSN {
	if b.Before(a) {
		return b
	}
	return a
}

func laterPSN(a, b ib.PSN) ib.PSN {
	if b.After(a) {
		return b
	}
	return a
}

// silenceMeansLoss reports whether a missing answer means that a packet was lost. It does
// not while the Flow, the pacer or slow memory holds back all packets that are to be sent
// again, or the packet that will ask for an ACK.
func (r *requester) silenceMeansLoss() bool {
	if r.win.waiting()+r.win.sacked.n == 0 {
		return false
	}
	heldBack := r.q.waiting || r.fetchBlocked || r.q.timers.isSet(timerPace)
	return !heldBack || r.win.holds(r.ackReqs.latest)
}

// outOfCredit applies end-to-end flow control (IBTA 9.7.7.2). Beyond the credit limit
// one packet may be sent while nothing else is in flight, to learn the new limit. A
// message whose first packet was acknowledged has its receive and may continue.
func (r *requester) outOfCredit(s *sendWQE) bool {
	if !r.credits.counted || !s.ssn.After(r.credits.lsn) {
		return false
	}
	if r.win.una.After(s.first) {
		return false
	}
	return r.win.inFlight() > 0
}

// find returns the slot whose message holds a PSN in flight. It is a binary search:
// PSNs increase with the slots.
func (r *requester) find(psn ib.PSN) uint32 {
	lo, n := r.oldest, r.cur-r.oldest
	if r.cur != r.tail && r.slot(r.cur).begun {
		n++
	}
	for n > 1 {
		half := n / 2
		if psn.Before(r.slot(lo + half).first) {
			n = half
		} else {
			lo, n = lo+half, n-half
		}
	}
	return lo
}

// backoffMost is up to where the ACK timeout doubles, in nanoseconds, 4.096 us * 2^16: a queue is empty long before,
// and who waits for a peer that is gone should not wait for longer than it has asked for.
const backoffMost = 4096 << 16

// armAck starts the local ACK timer, if there is one and something is in flight.
func (r *requester) armAck(now ib.Instant) {
	timeout := r.ackTimeout()
	if timeout == 0 || r.win.inFlight() == 0 {
		r.q.timers.clear(timerAck)
		return
	}
	// The timer may run for up to four times its value (IBTA 9.7.6.1.3). For a distant peer it is raised
	// to the time in which an answer is expected. It doubles after each timeout, up to backoffMost: what many
	// send again at once into a full queue is lost again.
	wait := max(timeout, r.q.flow.rtt.rto())
	timeout = min(max(wait, min(wait<<r.recovery.timeouts, backoffMost)), 4*timeout)
	r.q.timers.set(timerAck, now+ib.Instant(timeout))
}

// ackTimeout is the local ACK timeout in nanoseconds; 0 is none.
func (r *requester) ackTimeout() int64 { return int64(wire.AckTimeout(r.q.attr.Timeout)) }

// uncharge releases what is in flight from the Flow and marks it to be sent again. SetFlow
// calls it before the QP changes to another Flow.
func (r *requester) uncharge() {
	r.markFrom(r.win.una)
	r.probe.stop()
}

// stop abandons all packets in flight; the slots stay for flush.
func (r *requester) stop() {
	for i := r.oldest; i != r.cur; i++ {
		s := r.slot(i)
		s.acked = s.last().Before(r.win.una)
	}
	r.unreadable.set, r.failedFlushed = false, false
	if f := r.q.flow; f != nil {
		r.releaseRange(r.win.una, r.win.nxt)
		f.remove(r.q)
	}
	r.win.start(r.win.nxt)
	r.sel, r.again = nil, nil
	r.reads.reset()
	r.probe.stop()
}

// reset discards all requests, including those in the ring, without completions.
func (r *requester) reset() {
	r.stop()
	r.q.cfg.SQ.Discard()
	r.oldest, r.cur = r.tail, r.tail
	r.unfetched, r.toFlush = false, 0
	r.win.start(0)
	r.failed.set, r.placing = false, 0
}

// fail takes the QP to ERR, or to SQE if its service is unreliable (IBTA 10.8.5);
// slot i completes with status, all others as flushed.
func (r *requester) fail(i uint32, status ib.WCStatus, why ib.Cause) {
	why.Op = r.slot(i).wr.Opcode
	r.q.because(why)
	r.failed = failure{set: true, slot: i, status: status}
	r.complete() // requests that were acknowledged before
	if r.q.svc.reliable {
		r.q.becomeErr()
	} else {
		r.q.becomeSQE()
	}
}

// failMemory fails slot i, whose memory cannot be read or written.
func (r *requester) failMemory(i uint32) {
	r.fail(i, ib.WCLocProtErr, gone(r.q.cfg.Table, r.slot(i).sgl))
}

// failInTurn fails slot i, whose memory cannot be read, as soon as all requests
// before it are complete: completions come in order, and requests behind the first
// error are flushed.
func (r *requester) failInTurn(i uint32) {
	if u := &r.unreadable; !u.set || i-r.oldest < u.slot-r.oldest {
		*u = failure{set: true, slot: i}
	}
	r.complete()
}

// blocked reports whether a PSN in flight belongs to the unreadable request or one behind it.
func (r *requester) blocked(psn ib.PSN) bool {
	return r.unreadable.set && r.find(psn)-r.oldest >= r.unreadable.slot-r.oldest
}

// finish pushes the completion of slot i, whose ring entry is released.
func (r *requester) finish(i uint32, status ib.WCStatus) {
	s := r.slot(i)
	if s.slow {
		r.q.fetch.forget(requests, i)
	}
	op := &sendOps[s.wr.Opcode]
	if status == ib.WCSuccess {
		r.q.kept().traffic.SentMessages++
		if op.wc == ib.WCSend {
			r.q.cfg.Stats.RDMASends++
		}
	}
	if status == ib.WCSuccess && !r.q.cfg.SigAll && s.wr.Flags&ib.SendSignaled == 0 {
		return
	}
	wc := ib.WC{ID: s.wr.ID, Status: status, Opcode: op.wc}
	if status != ib.WCSuccess {
		wc.VendorErr = r.q.vendorErr()
	} else if r.q.svc.reliable && op.kind != kindLocal {
		r.q.cfg.Stats.CompletionLatency.add(micros(r.q.now) - s.since)
	}
	if op.kind == kindRead || op.kind == kindAtomic {
		wc.ByteLen = s.length
	}
	r.q.complete(r.q.cfg.SendCQ, &wc, false)
}
