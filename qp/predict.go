package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/wire"
)

// This file is header prediction: in a fast stream most packets are like the one
// before, and need only a few of the checks (V. Jacobson, 4BSD header prediction,
// 1990). All other packets take the normal path, which makes every check. A responder or
// completer handles a sequence of alike frames, which a requester has sent as a train
// (train.go), in one call, up to the first that is not as predicted.

// foreseen executes p and returns true if p is a WRITE ONLY with the expected PSN to
// the region of the latest WRITE, as those of a train are.
func (r *responder) foreseen(now ib.Instant, p *wire.Packet) bool {
	if !r.holds(p) {
		return false
	}
	ok := mr.WriteHeld(r.again, p.RETH.VA, p.Payload)
	mr.Release(r.again)
	if !ok {
		return false
	}
	r.wrote(1)
	if p.AckReq {
		r.oweACK(now, 1)
	}
	return true
}

// train handles frames of size bytes, each like the one before (wire.Alike), of which p
// is the first, up to one that is not as predicted. It returns how many it handled.
func (r *responder) train(p *wire.Packet, frames []byte, size int) int {
	switch p.Opcode {
	case wire.RCWriteOnly:
		return r.writeTrain(p, frames, size)
	case wire.RCSendMiddle:
		return r.sendTrain(p, frames, size)
	}
	return 0
}

// writeTrain handles WRITE ONLYs.
func (r *responder) writeTrain(p *wire.Packet, frames []byte, size int) (n int) {
	if !r.holds(p) {
		return r.lateTrain(p, frames, size)
	}
	asks := 0
	for at := 0; at < len(frames); at += size {
		frame := frames[at:]
		if !mr.WriteHeld(r.again, wire.AlikeVA(frame), payloadLike(p, frame)) {
			break
		}
		if wire.AlikeAsks(frame) {
			asks++
		}
		n++
	}
	mr.Release(r.again)
	if n > 0 {
		r.wrote(n)
		r.oweACK(r.q.now, asks)
	}
	return n
}

// maxLateRun bounds the bytes of one placement: none of its packets is acknowledged
// before all are in memory.
const maxLateRun = 64 << 10

// lateTrain handles WRITE ONLYs to memory that is not direct.
func (r *responder) lateTrain(p *wire.Packet, frames []byte, size int) (taken int) {
	if !r.nextOnly(p) {
		return 0
	}
	for taken*size < len(frames) {
		n := r.lateRun(p, frames[taken*size:], size)
		if n == 0 {
			break
		}
		taken += n
	}
	return taken
}

// lateRun handles the first frames, each of which writes where the one before has ended:
// it makes one placement and one commit for all of them.
func (r *responder) lateRun(p *wire.Packet, frames []byte, size int) (n int) {
	each, head, va := len(p.Payload), wire.AlikeLen(p.Opcode), wire.AlikeVA(frames)
	most := min(len(frames)/size, r.q.late.room(), max(maxLateRun/each, 1))
	asks := 0
	for n < most && wire.AlikeVA(frames[n*size:]) == va+uint64(n*each) {
		if wire.AlikeAsks(frames[n*size:]) {
			asks++
		}
		n++
	}
	span, ok := mr.Late(r.again, p.RETH.RKey, va, uint64(n*each))
	if n == 0 || !ok || !r.commits.room() {
		return 0
	}
	data := frames[head : (n-1)*size+head+each]
	run := mr.Placement{Kind: mr.PlaceWrite, R: span.R, Off: span.Off, Data: data, Each: each, Stride: size}
	if r.q.late.add(r.q, run, lateOwner{slot: r.commits.next()}) != nil {
		return 0
	}
	r.owed.discarding = false
	r.q.cfg.Stats.RxWrites += uint64(n)
	r.epsn = r.epsn.Add(n)
	r.commit(r.q.now, commit{psn: r.epsn.Add(-1), messages: n, asks: asks}, 1)
	return n
}

// sendTrain handles MIDDLEs of the SEND that is under way, as long as the memory of the
// receive is direct.
func (r *responder) sendTrain(p *wire.Packet, frames []byte, size int) (n int) {
	bytes := uint64(len(p.Payload))
	if p.PSN != r.epsn || r.inside != inSend || r.phase >= refused || !r.commits.empty() ||
		bytes != uint64(r.q.attr.PathMTU) {
		return 0
	}
	for at := 0; at < len(frames) && r.done+bytes <= r.recv.total; at += size {
		if _, err := mr.Scatter(r.recv.sgl, r.done, payloadLike(p, frames[at:]), nil); err != nil {
			break
		}
		r.done += bytes
		n++
	}
	if n > 0 {
		r.owed.discarding = false
		r.epsn = r.epsn.Add(n)
		r.acked = r.epsn.Add(-1)
	}
	return n
}

// takeTrain handles MIDDLEs of the response to the oldest READ, likewise.
func (r *requester) takeTrain(now ib.Instant, p *wire.Packet, frames []byte, size int) (n int) {
	rd := r.reads.oldest()
	full := len(p.Payload) == int(r.q.attr.PathMTU)
	if p.Opcode != wire.RCReadRespMiddle || rd == nil || r.sel != nil || rd.next != p.PSN || !full {
		return 0
	}
	s := r.slot(r.find(p.PSN))
	if sendOps[s.wr.Opcode].kind != kindRead {
		return 0
	}
	off, most := uint64(p.PSN.Sub(s.first)*len(p.Payload)), rd.end().Sub(p.PSN)-1
	for at := 0; at < len(frames) && n < most; at += size {
		if _, err := mr.Scatter(s.sgl, off, payloadLike(p, frames[at:]), nil); err != nil {
			break
		}
		off += uint64(len(p.Payload))
		n++
	}
	if n > 0 {
		rd.next = p.PSN.Add(n)
		r.moveTo(now, rd.next)
		r.complete()
		r.checkDrained()
	}
	return n
}

// payloadLike returns the payload of a frame like p.
func payloadLike(p *wire.Packet, frame []byte) []byte {
	return frame[wire.AlikeLen(p.Opcode):][:len(p.Payload):len(p.Payload)]
}

// nextOnly reports whether p is a valid WRITE ONLY with the expected PSN, and the region
// of an earlier WRITE is known (again).
func (r *responder) nextOnly(p *wire.Packet) bool {
	n := len(p.Payload)
	return p.Opcode == wire.RCWriteOnly && p.PSN == r.epsn && r.again != nil && r.inside == noMessage &&
		r.phase < refused && n > 0 && n <= int(r.q.attr.PathMTU) && int(p.RETH.Len) == n
}

// holds reports whether p passes nextOnly and its R_Key is valid for the region of the
// latest WRITE, in direct memory. If so, it holds the region (mr.Hold).
func (r *responder) holds(p *wire.Packet) bool {
	return r.nextOnly(p) && r.commits.empty() && mr.Hold(r.again, p.RETH.RKey)
}

// wrote advances epsn, msn and acked past n WRITE ONLYs.
func (r *responder) wrote(n int) {
	r.owed.discarding = false
	r.q.cfg.Stats.RxWrites += uint64(n)
	r.epsn, r.msn = r.epsn.Add(n), r.msn.Add(n)
	r.acked = r.epsn.Add(-1)
}
