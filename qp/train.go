package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file makes trains: packets that are alike (package wire) leave as one TxPacket. Of a long message these are the
// packets between the first and the last. Of short WRITEs each packet is a message of its own.

// Advance turns p into the n-th packet after it in its train. The PSNs of a train are consecutive. If each packet is a
// message, each asks for an ACK; else addresses and payloads are consecutive too, and only the first packet may ask.
func (p *TxPacket) Advance(n int) {
	p.Train -= n
	p.PSN = p.PSN.Add(n)
	switch {
	case p.messages != nil:
		s := &p.messages[n-1]
		p.messages = p.messages[n:]
		p.RETH.VA, p.SGL, p.Inline, p.Off = s.wr.RemoteAddr, s.sgl, nil, 0
		if s.wr.Flags&ib.SendInline != 0 {
			p.SGL, p.Inline = nil, s.wr.Inline
		}
		return
	case p.Inline != nil:
		p.Inline = p.Inline[n*p.Len:]
	default:
		p.Off += uint64(n * p.Len)
	}
	p.AckReq = false
	p.RETH.VA += uint64(n * p.Len)
}

// PutTrain writes the packets behind p, as many as there is room for in frames. Each frame has size bytes, the last
// four of which are for the ICRC. The first one holds p already. The errors are those of mr.Gather.
func (p *TxPacket) PutTrain(frames []byte, size int) error {
	n, header := len(frames)/size-1, wire.AlikeLen(p.Opcode)
	if p.messages != nil {
		return p.putMessages(frames, size, header)
	}
	if p.Inline != nil {
		for i := 1; i <= n; i++ {
			copy(frames[i*size+header:][:p.Len], p.Inline[i*p.Len:])
		}
	} else if err := mr.GatherEach(frames[size:], size, header, p.Len, p.SGL, p.Off+uint64(p.Len)); err != nil {
		return err
	}
	for i := 1; i <= n; i++ {
		frame := frames[i*size:][:size]
		wire.PutAlike(frame, frames[(i-1)*size:], p.PSN.Add(i), p.RETH.VA+uint64(i*p.Len), false)
		clear(frame[header+p.Len:])
	}
	return nil
}

// putMessages is PutTrain for messages.
func (p *TxPacket) putMessages(frames []byte, size, header int) error {
	for i := 1; i < len(frames)/size; i++ {
		frame, s := frames[i*size:][:size], &p.messages[i-1]
		wire.PutAlike(frame, frames[(i-1)*size:], p.PSN.Add(i), s.wr.RemoteAddr, p.AckReq)
		payload := frame[header:][:p.Len]
		if s.wr.Flags&ib.SendInline != 0 {
			copy(payload, s.wr.Inline)
		} else if err := mr.Gather(payload, s.sgl, 0); err != nil {
			return err
		}
		clear(frame[header+p.Len:])
	}
	return nil
}

// train makes the next packets, which are like tx, follow tx in a train, up to most. It returns how many.
func (r *requester) train(tx *TxPacket, most int) int {
	psn := r.win.nxt
	if !r.q.cfg.Trains || wire.AlikeLen(tx.Opcode) == 0 || tx.Again ||
		tx.PSN.Add(1) != psn || r.cur == r.tail {
		return 0
	}
	s := r.slot(r.cur)
	if !s.begun || s.first == psn {
		return r.messages(tx, most)
	}
	if tx.SGL == nil && !s.slow {
		return 0
	}
	// The next packets of a message, as long as they need no AckReq and are not the last.
	n := min(most, tx.staysAlike(s.last().Sub(psn)), r.win.room()-1, r.q.flow.room(s.cost)-1,
		r.askEvery()-1-int(r.ackReqs.since), r.q.pace.train(s.cost)-1, r.q.flow.pace.train(r.q.now, s.cost)-1)
	if n <= 0 {
		return 0
	}
	tx.Train = n
	r.advance(s, n)
	r.ackReqs.since += int32(n)
	return n
}

// messages makes the messages behind tx follow it in a train, if tx is a message of one packet and they are like it
// (sendWQE.beginLike). Each of them asks for an ACK, as tx does.
func (r *requester) messages(tx *TxPacket, most int) int {
	before, psn := r.slot(r.cur-1), r.win.nxt
	if tx.Opcode != wire.RCWriteOnly || before.first != tx.PSN || before.slow || !rules[r.q.state].begin {
		return 0
	}
	at, begun := int(r.cur&r.mask), int((psn-r.slot(r.oldest).first)&ib.PSNMask)
	most = min(most, r.win.room(), r.q.flow.room(before.cost), r.q.pace.train(before.cost)-1,
		r.q.flow.pace.train(r.q.now, before.cost)-1, len(r.slots)-at, int(r.tail-r.cur),
		int(begunMost-(r.cur-r.oldest)), spanMost-begun)
	n := 0
	for n < most && r.slots[at+n].beginLike(before, psn.Add(n), r.ssn.Add(n+1)) {
		n++
	}
	if n <= 0 {
		return 0
	}
	tx.Train, tx.messages = n, r.slots[at:][:n]
	r.win.nxt, r.ssn, r.cur = psn.Add(n), r.ssn.Add(n), r.cur+uint32(n)
	r.q.flow.charge(n, before.cost)
	r.ackReqs.latest = laterPSN(r.ackReqs.latest, r.win.nxt.Add(-1))
	return n
}

// staysAlike caps n, how many packets of a message may follow tx, at those whose
// payloads lie in the same chunk, if the payload was fetched.
func (tx *TxPacket) staysAlike(n int) int {
	if tx.Inline == nil {
		return n
	}
	return min(n, len(tx.Inline)/tx.Len-1)
}

// readTrain makes MIDDLEs of a READ's response follow tx in a train, likewise.
func (r *responder) readTrain(s *resource, tx *TxPacket, most int) int {
	if !r.q.cfg.Trains || tx.Opcode != wire.RCReadRespMiddle || tx.Again {
		return 0
	}
	n := max(min(most, tx.staysAlike(s.end.Sub(s.cursor)-1),
		r.lossy.train(r.q.now, tx.Len)-1), 0)
	tx.Train = n
	s.cursor = s.cursor.Add(n)
	return n
}
