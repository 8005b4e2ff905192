package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/wire"
)

// Config describes the QP that New makes. The rings and CQs belong to the caller; the QP
// is the only consumer of SQ and RQ. With an SRQ, and for XRC, RQ is not used.
type Config struct {
	Num    ib.QPN
	Type   ib.QPType
	Table  *mr.Table
	PD     *mr.PD
	SQ     *ring.Send
	RQ     *ring.Recv
	SendCQ *CQ
	RecvCQ *CQ
	SRQ    *SRQ  // where receives come from instead of RQ
	XRCD   *XRCD // XRCTGT: the domain of the SRQs that requests may name
	SRQs   SRQs  // XRCTGT
	AHs    AHs   // UD
	Cap    ib.QPCap
	SigAll bool

	// Trains sends WRITEs without immediate as trains of WRITE ONLYs, for links
	// that take runs of equal packets. The effect at the responder is the same: each
	// packet names its address, and no receive is used. It also allows TxPacket.Train.
	Trains bool
	// Probe enables tail probes, after a silence of a few round trips, so that the loss
	// of the last packets of a flight need not wait for the ACK timeout.
	Probe bool

	Limits *Limits // the device's; shared by its QPs
	Stats  *Stats  // the shard's; shared by its QPs
	Due    *Due    // the shard's; nil if events of CQs and SRQs are not needed

	// AckDelay is how long a plain ACK may wait, in nanoseconds, so that it can follow
	// other packets in one send. 0 sends it with the next NextPackets.
	AckDelay int64
	// MaxLate bounds the placements that wait for Placed. Their tables are allocated
	// with the first placement; 0 suits devices whose memory is all direct.
	MaxLate int
}

// TxPacket is one packet to send, or the first of a train: headers, and a reference to
// the payload. It is valid until the next input to the QP.
type TxPacket struct {
	wire.Packet // Payload is unused
	SGL         mr.SGL
	Off         uint64    // where in SGL the payload starts
	Inline      []byte    // the payload, if SGL is nil, followed by those of the train
	Len         int       // payload bytes, without pad
	AH          *AH       // destination of a datagram; nil for the QP's peer
	Train       int       // packets like this one that follow it: see Advance
	Again       bool      // it was sent before, or answers a duplicate request
	messages    []sendWQE // of the train, if each of its packets is a message; else nil
}

// Pad returns the number of zero bytes that follow the payload (IBTA 9.2.3).
func (p *TxPacket) Pad() int { return -p.Len & 3 }

// QP is a queue pair: a requester, a completer and a responder that share a
// state. It is a pure state machine with one owner at a time.
type QP struct {
	cfg    Config
	svc    *service
	now    ib.Instant // time of the latest input, the timestamp of completions
	attr   ib.QPAttr
	events EventSet
	send   bool  // NextPackets is to be called
	ring   bool  // Doorbell is to be called
	taken  int16 // requests fetched since the latest Effects
	flow   *Flow
	pace   pacer
	timers timerTable

	req  requester
	resp responder
	late lateTable
	// fetch is nil until the QP sends from memory that is not direct.
	fetch *fetchTable

	arrivals Arrivals

	// Owner is for the engine that holds the QP; the QP does not use it.
	Owner any

	history *history // nil until the first packet
	rec     *Ring    // the recorder; nil until there is something to record

	state          ib.QPState
	wide           bool // the path MTU was above the port's when it was set
	lostCompletion bool // a CQ overran
	lastWQE        bool // EventLastWQE was raised
	recvRings      bool // posting receives rings the doorbell
	waiting        bool // in the list of flow
	stageAsked     bool // Limits.Stage was called, and late.limit follows from it

	nextWaiting *QP // in the list of flow
}

// New makes a QP in RESET. Later allocations are only the responder resources and the
// table of outstanding READs, in Modify, and the tables and chunks for memory that is
// not direct, when it is first used.
func New(cfg Config) *QP {
	q := &QP{cfg: cfg, svc: &services[cfg.Type]}
	q.req.init(q)
	q.resp.init(q)
	q.late.limit = cfg.MaxLate
	q.timers.clearAll()
	return q
}

// Reached returns the PSN expected in the peer's next request, and the oldest PSN of the QP's
// requests that is not acknowledged. Only packets with valid PSNs advance them.
func (q *QP) Reached() (expected, unacknowledged ib.PSN) { return q.resp.epsn, q.req.win.una }

// Num returns the QP number.
func (q *QP) Num() ib.QPN { return q.cfg.Num }

// Type returns the transport service.
func (q *QP) Type() ib.QPType { return q.cfg.Type }

// State returns the state.
func (q *QP) State() ib.QPState { return q.state }

// SendCQ and RecvCQ return the completion queues.
func (q *QP) SendCQ() *CQ { return q.cfg.SendCQ }

// RecvCQ returns the completion queue of receives.
func (q *QP) RecvCQ() *CQ { return q.cfg.RecvCQ }

// PD returns the protection domain.
func (q *QP) PD() *mr.PD { return q.cfg.PD }

// AH returns the address vector; it is meaningful from RTR on.
func (q *QP) AH() *ib.AHAttr { return &q.attr.AH }

// DestQPN returns the peer's QP number; it is meaningful from RTR on.
func (q *QP) DestQPN() ib.QPN { return q.attr.DestQPN }

// SetFlow sets the Flow of the destination, which only reliable services use. The engine
// calls it after the transition to RTR, and when Modify in SQD changes the destination.
func (q *QP) SetFlow(f *Flow) {
	if q.flow != nil {
		q.req.uncharge()
		q.flow.remove(q)
	}
	q.flow = f
	q.send = true
}

// Doorbell tells the QP that its rings hold new requests, which NextPackets takes out when
// it can send them. Where requests are flushed, Doorbell flushes some.
func (q *QP) Doorbell(now ib.Instant) {
	q.now = now
	switch r := &rules[q.state]; {
	case !r.fetch:
		return
	case r.flush:
		q.flush()
	case r.flushSend:
		q.req.startFlush()
		q.flushSome()
	default:
		q.req.unfetched = true
		if q.req.toFlush > 0 { // since SQE
			q.flushSome()
		}
	}
	q.settle()
}

// Rearm makes the posting process ring the doorbell for later posts: of requests and,
// in ERR, of receives, since these are flushed. It is for owners whose application
// shares nothing but the rings, and is called before Doorbell.
func (q *QP) Rearm() {
	if q.cfg.SQ.Entries() > 0 {
		q.cfg.SQ.Sleep()
	}
	switch {
	case q.cfg.RQ.Entries() == 0:
	case q.state == ib.StateErr:
		q.recvRings = true
		q.cfg.RQ.Sleep()
	case q.recvRings:
		q.recvRings = false
		q.cfg.RQ.Awake()
	}
}

// HandlePackets handles a run of decoded packets that were addressed to this QP.
// The owner has checked the ICRC, the P_Key and the peer's address, and set ECN. It may reuse
// the payload buffers afterwards, except those that Effects.Placements refers to.
func (q *QP) HandlePackets(now ib.Instant, run []wire.Packet) {
	q.now = now
	q.arrivals.answered = false
	if q.resp.early != nil {
		q.resp.forgetEarly()
	}
	for i := range run {
		q.recordReceived(&run[i], 0)
		q.handlePacket(now, &run[i])
		if q.resp.early != nil {
			q.resp.catchUp(now)
		}
	}
	q.settle()
}

// HandleAlike handles packets that follow the last one of HandlePackets: frames of size
// bytes, BTH to ICRC, each like the one before (wire.Alike) and with the same ECN. It
// returns how many it handled; the others must go to HandlePackets. The owner's checks and
// its reuse of buffers are as for HandlePackets.
func (q *QP) HandleAlike(now ib.Instant, frames []byte, size int, ecn wire.ECN) (n int) {
	var p wire.Packet
	r := &rules[q.state]
	if !q.svc.reliable || p.Decode(frames[:size-wire.ICRCLen]) != nil {
		return 0
	}
	q.now, p.ECN = now, ecn
	switch {
	case !p.Opcode.IsRequest() && r.response && q.svc.sends:
		n = q.req.takeTrain(now, &p, frames, size)
	case p.Opcode.IsRequest() && r.request && q.svc.receives:
		n = q.resp.train(&p, frames, size)
		if q.resp.early != nil {
			q.resp.catchUp(now)
		}
	}
	q.recordAlike(&p, frames[:n*size], size)
	q.countMarked(&p, n)
	q.settle()
	return n
}

// HandleDatagram handles one packet that was addressed to a UD QP. grh is written to the
// receive before the payload. The owner has checked ICRC and P_Key, and set ECN.
func (q *QP) HandleDatagram(now ib.Instant, p *wire.Packet, grh *[ib.GRHLen]byte) {
	q.now = now
	q.recordReceived(p, 0)
	q.countMarked(p, 1)
	if !rules[q.state].request {
		q.cfg.Stats.DropState++
		return
	}
	send := q.send
	q.resp.datagram(now, p, grh)
	q.settle()
	q.send = send // a datagram has no answer
}

func (q *QP) handlePacket(now ib.Instant, p *wire.Packet) {
	q.countMarked(p, 1)
	r := &rules[q.state]
	if p.Opcode.IsRequest() {
		switch {
		case !r.request || !q.svc.receives:
			q.dropState()
		case q.svc.reliable:
			q.resp.handle(now, p)
		default:
			q.resp.handleUnreliable(now, p)
		}
		return
	}
	if !r.response || !q.svc.sends {
		q.dropState()
		return
	}
	q.req.handleResponse(now, p)
}

// dropState drops a packet that the QP's state does not accept.
func (q *QP) dropState() {
	q.cfg.Stats.DropState++
	q.judge(WrongState)
}

// HandleTimeout handles all timers that have expired at now. A call that is too early
// does nothing.
func (q *QP) HandleTimeout(now ib.Instant) {
	q.now = now
	if q.timers.expired(timerRNR, now) {
		q.recordTimer(TimerRNR, int(q.req.recovery.rnrRetries))
		q.req.armAck(now) // NextPackets sends again from now on
	}
	if q.timers.expired(timerAck, now) {
		q.req.recovery.timeout(now)
	}
	if q.timers.expired(timerProbe, now) {
		q.req.probeTimeout(now)
	}
	// For the other timers it is enough that NextPackets is called again.
	q.timers.expired(timerDelayedACK, now)
	q.timers.expired(timerPace, now)
	q.timers.expired(timerSACK, now)
	if q.timers.expired(timerReorder, now) {
		q.req.reorderTimeout(now)
	}
	q.timers.expired(timerResponse, now)
	q.settle()
}

// Deadline returns when HandleTimeout, and NextPackets after it, must be called;
// driver.Never if only an input can change anything.
func (q *QP) Deadline() ib.Instant { return q.timers.earliest() }

// NextPackets fills out with packets to send now and returns how many elements it
// has used. With their trains these are len(out) packets at most; fewer means that
// nothing more can be sent until the next input (Fetched is one), the next deadline, or
// room in the Flow (Flow.Next returns the QP then), unless Effects.Send says otherwise.
// Responses are first, then requests, then a plain ACK. New requests are first copied out of
// the ring, once, and checked; receives stay there until a message needs one. The owner copies
// the packets and calls Sent.
func (q *QP) NextPackets(now ib.Instant, out []TxPacket) int {
	q.now = now
	if q.req.unfetched && rules[q.state].resend && q.req.toFlush == 0 && q.req.fetch() != nil {
		q.fatal(ib.ReasonRing)
	}
	r := &rules[q.state]
	n, trains := 0, 0
	if r.respond || q.resp.phase == dying {
		n, trains = q.resp.emit(now, out)
	}
	r = &rules[q.state] // emit may have gone to ERR for a READ whose memory is gone
	switch {
	case r.resend && q.svc.reliable:
		used, more := q.req.emit(now, out[n:len(out)-trains])
		n, trains = n+used, trains+more
	case r.resend && q.req.toFlush == 0:
		n += q.req.emitUnreliable(now, out[n:])
	}
	if r.respond && n+trains < len(out) {
		n += q.resp.emitACK(now, &out[n], n > 0)
	}
	if r.respond && n+trains < len(out) {
		n += q.resp.emitSACK(now, &out[n])
	}
	if r.respond && n+trains < len(out) {
		n += q.emitCNP(now, &out[n])
	}
	q.cfg.Stats.SentPkts += uint64(n + trains)
	q.recordSent(now, out[:n])
	q.settle()
	q.send = n+trains == len(out) || q.req.unfetched && q.req.cur == q.req.tail
	return n
}

// LastACK builds the pending plain ACK, and reports whether there is one. An owner calls
// it before it ends the QP: otherwise the peer would repeat requests that have completed
// here until its retries run out.
func (q *QP) LastACK(now ib.Instant, tx *TxPacket) bool {
	q.now = now
	if !rules[q.state].respond || q.resp.emitACK(now, tx, true) == 0 {
		return false
	}
	q.cfg.Stats.SentPkts++
	if r := q.recorder(); r != nil {
		r.sent(now, tx)
	}
	return true
}

// Sent reports that the payloads of the packets from NextPackets have been copied.
// Requests of an unreliable service are complete now, which may allow more packets;
// those of reliable services wait for the peer's answer.
func (q *QP) Sent(now ib.Instant) {
	if q.svc.reliable {
		return
	}
	q.now = now
	before, send := q.req.oldest, q.send
	q.req.complete()
	q.req.checkDrained()
	q.settle()
	q.send = send || q.req.oldest != before && q.req.cur != q.req.tail
}

// SendFailed reports that the payload of a packet from NextPackets could not be
// read. The packet, and those after it in the same batch, must not be sent.
func (q *QP) SendFailed(now ib.Instant, p *TxPacket) {
	q.now = now
	q.send = true
	switch {
	case !q.svc.reliable:
		q.req.failUnreliable(p.PSN)
		return
	case p.Opcode.IsRequest():
		if q.req.win.holds(p.PSN) {
			q.req.failInTurn(q.req.find(p.PSN))
		}
		return
	}
	if s := q.resp.res.find(p.PSN); s != nil {
		s.cursor = p.PSN
		q.resp.revoked(now, s)
	}
}
