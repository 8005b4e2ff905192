package engine

import (
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/offload"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Sizes of a send batch: runs that wait for the link, and packets that one QP may
// send before another QP gets its turn. In the worst case each packet makes a run of
// its own; a QP's turn begins only when there is room for that.
const (
	txRuns    = 2 * txPackets
	txPackets = 64
)

// transmitter asks ready QPs for packets and packs them into runs, as segmentation offload
// requires: a run has consecutive frames of one size, the last of which may be shorter, to one
// shard of one destination. They may be of different QPs.
type transmitter struct {
	s       *Shard
	packets []qp.TxPacket
	runs    []link.Run     // filled, oldest first
	buffers [][]byte       // buffers[i] holds runs[i]; made when first needed (trim.go)
	room    trim           // what of buffers is given back
	n       int            // runs in use; the last one may still grow
	open    bool           // the last run may still grow
	last    offload.Packet // the last frame in it
	blocked bool           // the link takes no more for now
	path    link.Run       // addresses of the current datagram
	frames  int            // number of frames in the last run
	bytes   int            // sent by this drain, and what else counts as bytes (bounds.go)
	latest  *QP            // the latest that has sent something in this drain
	shard   int            // shard of the peer that the last run goes to
}

func (t *transmitter) init(s *Shard) {
	t.s = s
	t.packets = make([]qp.TxPacket, txPackets)
	t.runs = make([]link.Run, txRuns)
	t.buffers = make([][]byte, txRuns)
	t.room.at = driver.Never
}

// drain gives ready QPs their turns and sends their packets. It reports whether there
// were any, or whether QPs are left for the next drain.
func (t *transmitter) drain() bool {
	if t.blocked && !t.flush() {
		return false
	}
	sent := t.s.qp1.send(t)
	t.bytes, t.latest = 0, nil
	for qps := 0; qps < TurnQPs && t.bytes < TurnBytes; qps++ {
		if t.n > txRuns-txPackets && !t.flush() || t.blocked {
			break
		}
		q := t.s.ready.pop()
		if q == nil {
			break
		}
		sent = t.pull(q) || sent
	}
	return t.flush() && (sent || !t.s.ready.empty())
}

// pull packs the packets of one QP. after puts the QP back at the end of its ready list if it
// has more to send.
func (t *transmitter) pull(q *QP) bool {
	now := t.s.now
	t.s.current = q
	n := q.core.NextPackets(now, t.packets)
	packets, before := n, t.bytes
	for i := range t.packets[:n] {
		p := &t.packets[i]
		packets += p.Train
		at := t.bytes
		if err := t.addTrain(q, p); err != nil {
			q.core.SendFailed(now, p)
			break
		}
		if p.Again {
			t.countAgain(q, p, t.bytes-at)
		}
	}
	if sent := t.bytes - before; n > 0 {
		q.core.Traffic().SentBytes += uint64(sent)
		if q != t.latest {
			t.bytes += min(2*sent, switchBytes)
		}
		t.latest = q
	}
	q.core.Sent(now)
	taken := t.s.applyEffects(q)
	t.bytes += taken * requestBytes
	t.s.ready.charge(q, max(packets, taken, 1))
	return n > 0
}

// countAgain counts the packets of a train that has so many bytes, and was sent again.
func (t *transmitter) countAgain(q *QP, p *qp.TxPacket, bytes int) {
	packets, traffic, stats := uint64(1+p.Train), q.core.Traffic(), &t.s.stats
	traffic.ResentPkts += packets
	traffic.ResentBytes += uint64(bytes)
	stats.ResentPkts += packets
	stats.ResentBytes += uint64(bytes)
}

// lastACK sends a pending ACK, which the QP delays to coalesce it with outgoing data, before
// the QP ends.
func (t *transmitter) lastACK(q *QP) {
	if t.n == txRuns || !q.core.LastACK(t.s.now, &t.packets[0]) {
		return
	}
	t.open = false              // it goes in a run of one (package offload): the QP cannot repeat it
	_ = t.add(q, &t.packets[0]) // fails only on a payload, which an ACK does not have
	t.flush()
}

// add appends a packet to the last run, or begins a new one.
func (t *transmitter) add(q *QP, p *qp.TxPacket) error {
	if q.forges(p) {
		t.s.stats.DropForgedMAD++
		return nil
	}
	size := p.Opcode.HeaderLen() + p.Len + p.Pad() + wire.ICRCLen
	path := &q.path
	if p.AH != nil {
		path = &t.path
		*path = *p.AH.Owner.(*link.Run)
		if path.Src.Is4() != path.Dst.Is4() { // a group of the other family: no packet could have such addresses
			return nil
		}
		path.SrcPort = t.s.sourcePort(path.FlowLabel, q.num, p.DestQP)
	}
	most := t.s.runLimit(q, p, path)
	if shard := link.ShardOf(p.DestQP, peerShards); most == 1 || shard != t.shard || !t.fits(path, size) {
		t.begin(path, size)
		t.shard = shard
	}
	run := &t.runs[t.n-1]
	at := len(run.Buf)
	frame := run.Buf[at : at+size]
	n := p.PutHeaders(frame)
	err := t.payload(frame[n:n+p.Len], p)
	if err != nil {
		if at == 0 {
			t.n, t.open = t.n-1, false
		}
		return err
	}
	clear(frame[n+p.Len : size])
	run.Buf = run.Buf[:at+size]
	t.bytes += size
	t.frames++
	t.open = size == run.Size && t.frames < min(most, t.s.engine.caps.RunFrames)
	t.follow(q, p, at > 0)
	return nil
}

// addTrain appends a packet and its train. If the payload of one of them cannot be read, it
// returns an error and p is that packet.
func (t *transmitter) addTrain(q *QP, p *qp.TxPacket) error {
	err := t.add(q, p)
	for err == nil && p.Train > 0 {
		if n := t.more(q, p); n > 0 {
			p.Advance(n)
			continue
		}
		p.Advance(1)
		err = t.add(q, p)
	}
	return err
}

// more appends packets of the train of p, which is the last packet of a run, as add would do,
// and returns how many. It returns 0 if add must handle the next packet on its own.
func (t *transmitter) more(q *QP, p *qp.TxPacket) int {
	if !t.open || !t.settled(q, p) {
		return 0
	}
	run := &t.runs[t.n-1]
	at, size := len(run.Buf), run.Size
	n := min(p.Train, t.s.engine.caps.RunFrames-t.frames, (cap(run.Buf)-at)/size)
	if n == 0 {
		return 0
	}
	buf := run.Buf[:at+n*size]
	if p.PutTrain(buf[at-size:], size) != nil {
		return 0
	}
	run.Buf = buf
	t.bytes += n * size
	t.frames += n
	t.open = t.frames < t.s.engine.caps.RunFrames
	t.last.PSN = p.PSN.Add(n)
	return n
}

// follow remembers p as the last packet of the run and, if p went behind another packet, lets
// package offload watch whether it arrives.
func (t *transmitter) follow(q *QP, p *qp.TxPacket, behind bool) {
	if behind && t.s.watched(q) {
		q.offload.Watch(&q.flow.trial, p, t.last)
	}
	t.last = offload.Packet{QP: &q.offload, Request: p.Opcode.IsRequest(), PSN: p.PSN}
}

// settled reports whether package offload neither watches nor limits the packets that follow p
// in its train.
func (t *transmitter) settled(q *QP, p *qp.TxPacket) bool {
	caps := &t.s.engine.caps
	if !caps.Segments || !q.path.Src.Is4() {
		return true
	}
	return q.flow != nil && !t.s.alone(q.flow) && q.offload.Unwatched(&q.flow.trial, p)
}

// payload copies the payload into the frame. It is read only once, so the ICRC matches the
// bytes that are sent even if the application changes its memory meanwhile.
func (t *transmitter) payload(dst []byte, p *qp.TxPacket) error {
	if p.Inline != nil {
		copy(dst, p.Inline)
		return nil
	}
	return mr.Gather(dst, p.SGL, p.Off)
}

// fits reports whether a frame of that path and size may be appended to the last run.
func (t *transmitter) fits(path *link.Run, size int) bool {
	if !t.open {
		return false
	}
	run := &t.runs[t.n-1]
	return size <= run.Size && len(run.Buf)+size <= cap(run.Buf) &&
		run.SrcPort == path.SrcPort && run.HopLimit == path.HopLimit && run.TrafficClass == path.TrafficClass &&
		run.FlowLabel == path.FlowLabel && run.Dst == path.Dst && run.Src == path.Src
}

// begin starts a run of frames of the given size.
func (t *transmitter) begin(path *link.Run, size int) {
	run := &t.runs[t.n]
	*run = *path
	run.Size = size
	if t.buffers[t.n] == nil {
		t.buffers[t.n] = make([]byte, t.s.engine.caps.RunBytes)
		t.room.made(t.s.now, t.n)
	}
	run.Buf = t.buffers[t.n][:0]
	t.frames = 0
	t.n++
	t.room.most = max(t.room.most, t.n)
	t.open = true
}

// flush gives the runs to the link. It returns false if the link would block; the
// remaining runs are sent first next time.
func (t *transmitter) flush() bool {
	t.open = false
	if t.n == 0 {
		t.blocked = false
		return true
	}
	sent, err := t.s.link.Send(t.s.now, t.runs[:t.n])
	if err != nil {
		sent = t.n // the link is closed; Wait reports it
	}
	for i := range sent {
		t.buffers[i], t.buffers[t.n-1-i] = t.buffers[t.n-1-i], t.buffers[i]
	}
	copy(t.runs, t.runs[sent:t.n])
	t.n -= sent
	t.blocked = t.n > 0
	return !t.blocked
}
