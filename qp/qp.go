package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/wire"
)

// Config says what QP to make. The rings and CQs are the caller's; the QP is
// the only consumer of SQ and RQ.
type Config struct {
	Num    ib.QPN
	Type   ib.QPType
	Table  *mr.Table
	PD     *mr.PD
	SQ     *ring.Send
	RQ     *ring.Recv
	SendCQ *CQ
	RecvCQ *CQ
	Cap    ib.QPCap
	SigAll bool
	Limits *Limits // the device's; shared by its QPs
	Stats  *Stats  // the shard's; shared by its QPs

	// AckDelay is how long a plain ACK may wait for data to ride behind, in
	// nanoseconds. 0 sends it with the next NextPackets.
	AckDelay int64
	// MaxLate bounds the placements that wait for Placed. 0 suits devices
	// whose memory is all direct.
	MaxLate int
}

// TxPacket is one packet to send: headers, and a payload that is named, not
// copied. It is valid until the next input to the QP.
type TxPacket struct {
	wire.Packet // Payload is unused
	SGL         mr.SGL
	Off         uint64 // where in SGL the payload starts
	Inline      []byte // the payload, if SGL is nil
	Len         int    // payload bytes, without pad
}

// Pad returns the number of zero bytes that follow the payload (IBTA 9.2.3).
func (p *TxPacket) Pad() int { return -p.Len & 3 }

// QP is a queue pair: a requester, a completer and a responder that share a
// state. It is a pure state machine with one owner at a time.
type QP struct {
	cfg    Config
	state  ib.QPState
	attr   ib.QPAttr
	events eventSet
	flow   *Flow
	pace   pacer
	timers timerTable

	req  requester
	resp responder
	late lateTable

	// Owner is for the engine that holds the QP; the QP does not look at it.
	Owner any

	lostCompletion bool // a CQ overran

	nextWaiting *QP // in Flow's list
	waiting     bool
}

// New makes a QP in RESET. Apart from the responder resources and the table of
// outstanding READs, which Modify sizes, nothing is allocated later.
func New(cfg Config) *QP {
	q := &QP{cfg: cfg}
	q.req.init(q)
	q.resp.init(q)
	q.late.init(cfg.MaxLate)
	q.timers.clearAll()
	return q
}

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

// SetFlow names the in-flight account of the destination. The engine calls it
// after the transition to RTR, and when an SQD-to-SQD modify moves the QP.
func (q *QP) SetFlow(f *Flow) {
	if q.flow != nil {
		q.req.uncharge()
		q.flow.remove(q)
	}
	q.flow = f
}

// Doorbell tells the QP that its rings hold new work. Send requests are copied
// out of the ring, once, and checked; receives stay there until a message needs
// one.
func (q *QP) Doorbell(now ib.Instant) {
	r := &rules[q.state]
	if !r.fetch && !r.flush {
		return
	}
	if err := q.req.fetch(); err != nil {
		q.fatal()
		return
	}
	if r.flush {
		q.flush()
	}
	q.settle()
}

// HandlePackets takes a run of decoded packets that were addressed to this QP.
// The owner has checked the ICRC, the P_Key and the peer's address. Payloads may
// be reused when it returns, except those that TakePlacements names.
func (q *QP) HandlePackets(now ib.Instant, run []wire.Packet) {
	for i := range run {
		q.handlePacket(now, &run[i])
	}
	q.settle()
}

func (q *QP) handlePacket(now ib.Instant, p *wire.Packet) {
	r := &rules[q.state]
	if p.Opcode.IsRequest() {
		if !r.request {
			q.cfg.Stats.DropState++
			return
		}
		q.resp.handle(now, p)
		return
	}
	if !r.response {
		q.cfg.Stats.DropState++
		return
	}
	q.req.handleResponse(now, p)
}

// HandleTimeout runs whatever is due at now. A call too early does nothing, a
// late one does it late.
func (q *QP) HandleTimeout(now ib.Instant) {
	if q.timers.expired(timerRNR, now) {
		q.req.rnrOver(now)
	}
	if q.timers.expired(timerAck, now) {
		q.req.ackTimeout(now)
	}
	// timerDelayedACK and timerPace only bring NextPackets back.
	q.timers.expired(timerDelayedACK, now)
	q.timers.expired(timerPace, now)
	q.settle()
}

// Deadline returns when HandleTimeout, and NextPackets after it, want to be
// called; ib.Never if only an input can change anything.
func (q *QP) Deadline() ib.Instant { return q.timers.earliest() }

// NextPackets fills out with packets to send now and returns how many. Less
// than len(out) means that nothing more can leave until the next input, the next
// deadline, or room in the Flow (Flow.Next hands the QP back then). Responses go
// first, requests next; a plain ACK rides behind.
func (q *QP) NextPackets(now ib.Instant, out []TxPacket) int {
	r := &rules[q.state]
	n := 0
	if r.respond || q.resp.dying {
		n = q.resp.emit(now, out)
	}
	r = &rules[q.state] // a READ whose memory is gone has led to ERR
	if r.resend {
		n += q.req.emit(now, out[n:])
	}
	if r.respond && n < len(out) {
		n += q.resp.emitACK(now, &out[n], n > 0)
	}
	q.cfg.Stats.SentPkts += uint64(n)
	q.settle()
	return n
}

// SendFailed reports that the payload of a packet from NextPackets could not be
// read. The packet, and those after it in the same batch, must not be sent.
func (q *QP) SendFailed(now ib.Instant, p *TxPacket) {
	if p.Opcode.IsRequest() {
		q.req.failPSN(p.PSN, ib.WCLocProtErr)
		return
	}
	if s := q.resp.res.find(p.PSN); s != nil {
		s.cursor = p.PSN
		q.resp.revoked(now, s)
	}
}
