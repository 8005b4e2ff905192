package qp

import (
	"errors"
	"math/bits"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// commit describes what the responder does once the data of a request, and of those
// before it, is in memory: acknowledge the PSN, count the message in the MSN, complete
// a receive, execute a READ or atomic, or refuse the request. With direct memory a
// commit is carried out at once; otherwise commits wait for their placements, in order.
// So everything that an ACK or NAK acknowledges is in memory, and receives complete in
// order.
type commit struct {
	kind      commitKind
	late      int    // unfinished placements
	failed    bool   // one of them failed
	psn       ib.PSN // acknowledged by this commit
	asks      int    // its packets that ask for an ACK
	messages  int    // messages that end with it, to be added to the MSN
	isSend    bool   // the data goes to a receive
	hasWC     bool
	solicited bool
	res       *resource // READ, single
	wc        ib.WC
	cq        *CQ           // for wc
	srq       *SRQ          // where the receive of wc came from; nil if from RQ
	nak       wire.Syndrome // commitRefusal
	event     ib.EventType  // commitRefusal
}

type commitKind uint8

const (
	commitData    commitKind = iota // SEND or WRITE packet
	commitRead                      // READ request: its responses may be sent from now on
	commitSingle                    // CAS, FAA, ATOMIC WRITE, FLUSH: not executed yet
	commitRefusal                   // the request is refused, which ends the connection
)

// refusal returns the commit that refuses the request at psn with a NAK of the given code.
func refusal(psn ib.PSN, code wire.Syndrome) commit {
	event := ib.EventQPReqErr
	if code == wire.NAKRemoteAccess {
		event = ib.EventQPAccessErr
	}
	return commit{kind: commitRefusal, psn: psn, nak: code, event: event}
}

// commitQueue holds commits that wait for placements, oldest first. It has room only on
// devices with memory that is not direct.
type commitQueue struct {
	q          *QP
	ring       []commit
	head, tail uint32
}

func (c *commitQueue) reset()       { c.head = c.tail }
func (c *commitQueue) empty() bool  { return c.head == c.tail }
func (c *commitQueue) next() uint32 { return c.tail }

func (c *commitQueue) at(i uint32) *commit { return &c.ring[int(i)&(len(c.ring)-1)] }

// room reports whether the next commit fits, or need not wait since the queue is empty.
func (c *commitQueue) room() bool {
	return c.empty() || int(c.tail-c.head) < len(c.ring)
}

// push appends a commit. The first push allocates the ring, for as many commits as
// there may be placements, rounded up to a power of two so that the counters may wrap.
func (c *commitQueue) push(e commit) *commit {
	if c.ring == nil {
		c.ring = make([]commit, 1<<bits.Len(uint(c.q.mostLate()-1)))
	}
	at := c.at(c.tail)
	*at = e
	c.tail++
	return at
}

// newCommit returns the commit of a SEND or WRITE packet.
func (r *responder) newCommit(p *wire.Packet) commit {
	c := commit{psn: p.PSN, isSend: p.Opcode.IsSend()}
	if p.AckReq && r.q.svc.reliable {
		c.asks = 1
	}
	if p.Opcode.Ends() {
		c.messages = 1
	}
	return c
}

// accept advances epsn past a SEND or WRITE packet and commits c.
func (r *responder) accept(now ib.Instant, p *wire.Packet, c commit, late int) {
	r.epsn = p.PSN.Add(1)
	if p.Opcode.Ends() {
		r.inside = noMessage
	}
	r.commit(now, c, late)
}

// commit carries c out now if it waits for no placement and no other commit, or queues
// it.
func (r *responder) commit(now ib.Instant, c commit, late int) {
	if late == 0 && r.commits.empty() && !(c.kind == commitSingle && c.res.late()) {
		r.carryOut(now, &c)
		return
	}
	c.late = late
	queued := r.commits.push(c)
	if queued.late == 0 && r.commits.at(r.commits.head) == queued {
		r.carryOut(now, queued) // execute starts its placement
	}
}

// carryOut executes c. It returns false if later commits must not follow: c now waits
// for a placement, or has taken the QP to ERR.
func (r *responder) carryOut(now ib.Instant, c *commit) bool {
	switch c.kind {
	case commitRead:
		c.res.start()
	case commitSingle:
		switch err := r.execute(c); {
		case err == errLater:
			return false
		case err != nil:
			denied := refusal(c.psn, wire.NAKRemoteAccess)
			r.noteAnswer(c.res)
			r.refuseNow(&denied)
			return false
		}
	case commitRefusal:
		r.refuseNow(c)
		return false
	}
	if c.hasWC && c.wc.Flags&ib.WCWithInv != 0 && !r.invalidate(c) {
		return false
	}
	if c.res == nil {
		r.acked = c.psn
	}
	r.carriedOut(c.messages)
	if c.hasWC {
		r.q.complete(c.cq, &c.wc, c.solicited)
	}
	r.oweACK(now, c.asks)
	return true
}

// carriedOut counts messages of the peer that have taken effect.
func (r *responder) carriedOut(messages int) {
	r.msn = r.msn.Add(messages)
	r.q.kept().traffic.RcvdMessages += uint64(messages)
}

// invalidate revokes the R_Key that a SEND with invalidate names. It is called when the SEND is carried
// out, not before: WRITEs that came first may still be placed by that key.
func (r *responder) invalidate(c *commit) bool {
	pd := r.q.cfg.PD
	if r.q.svc.xrc {
		pd = c.srq.pd
	}
	fault := r.q.cfg.Table.InvalidateByPeer(pd, r.q.cfg.Num, c.wc.InvalidatedKey)
	if fault == mr.FaultNone {
		return true
	}
	why := r.q.cfg.Table.Explain(fault, c.wc.InvalidatedKey, 0, 0, ib.RemoteInvalidate)
	r.noteRequest(ib.WRSendInv, c.psn, why)
	c.wc = ib.WC{ID: c.wc.ID, Status: ib.WCLocProtErr, Opcode: ib.WCRecv, VendorErr: why.Reason.VendorErr()}
	c.nak, c.event = wire.NAKRemoteAccess, ib.EventQPAccessErr
	r.refuseNow(c)
	return false
}

// errLater is returned for an operation that waits for a placement.
var errLater = errors.New("waits for a placement")

// execute executes a single-packet request (commitSingle): on direct memory at once,
// otherwise by a placement.
func (r *responder) execute(c *commit) error {
	if !c.res.late() {
		return c.res.execute()
	}
	if r.q.late.add(r.q, c.res.placement(), lateOwner{slot: r.commits.head}) != nil {
		return errLater // drain tries again
	}
	c.late, c.kind = 1, commitData
	return errLater
}

// placed handles the result of a placement of the commit in slot i.
func (r *responder) placed(now ib.Instant, i uint32, result uint64, err error) {
	if r.q.state == ib.StateErr || i-r.commits.head >= r.commits.tail-r.commits.head {
		return
	}
	c := r.commits.at(i)
	c.late--
	switch {
	case err != nil:
		c.fail(int(result))
	case c.res != nil:
		c.res.answer(result)
	}
}

// fail records that a placement failed. Of a train the first
// good packets were placed: messages becomes good, and psn the PSN of the failed packet.
func (c *commit) fail(good int) {
	c.failed = true
	if c.messages > 0 {
		good = min(good, c.messages-1)
		c.psn, c.messages = c.psn.Add(good+1-c.messages), good
	}
}

// refuseNow carries out a refusal: the QP goes to ERR. The NAK of a reliable connection
// stays pending: it is still sent (IBTA 9.9.3).
func (r *responder) refuseNow(c *commit) {
	if c.hasWC {
		c.hasWC = false // c may stay in the queue until ERR has flushed it
		r.q.complete(c.cq, &c.wc, false)
	}
	r.q.because(r.q.kept().refused.Cause)
	if !r.q.svc.reliable { // sends no NAK
		r.q.becomeErr()
		return
	}
	if r.phase == dying || r.q.state == ib.StateErr {
		return
	}
	if c.nak == wire.NAKRemoteAccess {
		r.q.cfg.Stats.RespRemoteAccess++
	}
	r.oweNAK(c.psn, c.nak)
	r.phase, r.inside = dying, noMessage
	r.q.raise(c.event)
	r.q.becomeErr()
}

// notPlaced ends the connection because memory could not be written. The peer gets a
// remote access error if the request named the address, and a remote operational error
// if a receive did.
func (r *responder) notPlaced(c *commit) {
	if c.messages > 0 { // packets of the train that were placed
		r.acked = c.psn.Add(-1)
		r.carriedOut(c.messages)
	}
	op, failed := ib.WRWrite, refusal(c.psn, wire.NAKRemoteAccess)
	if c.isSend {
		op, failed = ib.WRSend, refusal(c.psn, wire.NAKRemoteOp)
	}
	r.noteRequest(op, c.psn, gone(r.q.cfg.Table, r.target(c)))
	if c.isSend || !r.q.svc.reliable {
		r.spoilReceive()
	}
	r.refuseNow(&failed)
}

// spoilReceive makes the receive of the oldest commit's message complete with
// WCLocProtErr: the receive of a queued commit, or the one in use.
func (r *responder) spoilReceive() {
	for i := r.commits.head; i != r.commits.tail; i++ {
		if c := r.commits.at(i); c.hasWC {
			c.kind, c.wc.Status = commitData, ib.WCLocProtErr
			c.wc.VendorErr = ib.ReasonUnreadable.VendorErr()
			return
		}
	}
	r.recv.spoilt = true
}

// drain carries out commits from the oldest on, up to one that waits for placements.
func (r *responder) drain(now ib.Instant) {
	for !r.commits.empty() && r.q.state != ib.StateErr {
		c := r.commits.at(r.commits.head)
		if c.late > 0 {
			return
		}
		switch {
		case c.failed && !r.q.svc.reliable && !c.isSend && !c.hasWC:
			r.drop()
			r.commits.head++
			continue
		case c.failed:
			r.notPlaced(c)
			return
		}
		if !r.carryOut(now, c) {
			return
		}
		r.commits.head++
	}
}
