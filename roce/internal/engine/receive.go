package engine

import (
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/ipid"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// Sizes of a receive batch: runs taken from the link in one call, and packets
// handed to a QP in one.
const (
	rxRuns    = 32
	rxPackets = 64

	// rxBytes is how many bytes a batch should have at most: so few that they are still in the
	// processor's second-level cache when they are checked, and copied to where they belong.
	rxBytes = 256 << 10
)

// receiver takes frames from the link, checks and decodes them, and hands them to
// their QPs in runs.
type receiver struct {
	s      *Shard
	runs   []link.Run
	most   int   // how many runs the next batch may have
	link   batch // from the link
	mail   batch // from other shards
	work   int   // frames that this turn has processed of a batch
	copied int   // bytes of multicast datagrams beyond the first copy, since the latest batch was taken
	ids    ipid.Tracker

	// Packets for one QP that were decoded but not handed over yet.
	qp      *QP
	packets []wire.Packet
	n       int
}

func (r *receiver) init(s *Shard) {
	r.s = s
	r.runs, r.most = make([]link.Run, rxRuns), rxRuns
	r.packets = make([]wire.Packet, rxPackets)
}

// batch is a list of runs that turns process from the first to the last.
type batch struct {
	runs  []link.Run
	frame int // the next one of the first run
}

func (b *batch) done() bool { return len(b.runs) == 0 }

// unfinished reports whether there are frames left for the next turn.
func (r *receiver) unfinished() bool { return !r.link.done() || !r.mail.done() }

// giveUp drops what was received and is not processed.
func (r *receiver) giveUp() {
	r.n, r.qp = 0, nil
	r.link, r.mail = batch{}, batch{}
}

// receive goes on with the runs that other shards have passed on, and with those from the link.
// When all of them are processed it takes new ones, unless workers still hold frames of the
// last ones (held). It reports whether there were any.
func (r *receiver) receive(held bool) (busy bool) {
	if r.s.engine.several() {
		if r.mail.done() && !held {
			r.mail.runs = r.s.mail.take()
		}
		busy = r.process(&r.mail)
	}
	if r.link.done() && !held {
		r.link.runs = r.fromLink()
		busy = busy || !r.link.done()
	}
	return r.process(&r.link) || busy
}

// fromLink takes a batch from the link. Runs that are for other shards only are passed on.
func (r *receiver) fromLink() []link.Run {
	n, err := r.s.link.Recv(r.s.now, r.runs[:r.most])
	if err != nil {
		return nil // Wait reports a closed link
	}
	in := r.runs[:n]
	r.limit(in)
	if r.s.engine.several() {
		in = slices.DeleteFunc(in, func(run link.Run) bool { return !r.s.spread(&run) })
	}
	return in
}

// limit lets the next batch have about rxBytes, if its runs are as long as these. Where runs come one by one, it has
// one run, or else the link would look for another one before it returns the first, which takes a socket long; where
// there are more it grows. Shards in virtual time have simulated links, which need no look.
func (r *receiver) limit(in []link.Run) {
	bytes := r.copied
	for i := range in {
		bytes += len(in[i].Buf)
	}
	r.copied = 0
	switch {
	case r.s.engine.opts.Manual:
		r.most = rxRuns
	case len(in) == r.most:
		r.most = min(2*r.most, rxRuns)
	case len(in) <= 1:
		r.most = 1
	default:
		r.most = rxRuns
	}
	if bytes > 0 {
		r.most = max(1, min(r.most, rxBytes*len(in)/bytes))
	}
}

// process processes the next TurnFrames frames of a batch. It reports whether there were any. A peer whose
// whole window is in the batch does not wait for the end of the batch, nor does an application that has
// rung its doorbell meanwhile.
func (r *receiver) process(b *batch) bool {
	for r.work = 0; r.work < TurnFrames && !b.done(); {
		run := &b.runs[0]
		if b.frame = r.run(run, b.frame); b.frame == run.Frames() {
			b.runs, b.frame = b.runs[1:], 0
		}
	}
	r.handOver()
	return r.work > 0
}

// run processes those frames of a run that are for this shard, from the given one on, and returns
// the next one to process. It checks the ICRC first: before that no other field can be trusted.
func (r *receiver) run(run *link.Run, from int) int {
	shards := len(r.s.engine.shards)
	mixed := shards > 1 && !isMulticast(&run.Dst)
	outer := wire.Outer{Src: run.Src, Dst: run.Dst, SrcPort: run.SrcPort, DstPort: link.Port}
	src := r.ids.Source(run)
	prefix := outer.Prefix(run.Size)
	ecn := wire.ECNOf(run.TrafficClass)
	trains := true
	i, n := from, run.Frames()
	for ; i < n && r.work < TurnFramesMost; i++ {
		r.work++
		frame := run.Frame(i)
		if mixed && link.FrameShard(frame, shards) != r.s.id {
			continue
		}
		if len(frame) < wire.BTHLen+wire.ICRCLen {
			r.s.stats.DropMalformed++
			continue
		}
		if len(frame) != run.Size {
			prefix = outer.Prefix(len(frame))
		}
		if !prefix.Check(run.ID+uint16(i), frame) && !r.ids.Check(r.s.now, src, &outer, run, i, frame) {
			r.s.stats.RxICRCErrors++
			continue
		}
		p := &r.packets[r.n]
		if err := p.Decode(frame[:len(frame)-wire.ICRCLen]); err != nil {
			r.s.stats.DropMalformed++
			continue
		}
		if p.ECN = ecn; i == 0 && run.Congested {
			p.ECN = wire.CE // the socket is as full as the queue of a switch that marks
		}
		if p.Opcode.Service() == wire.UD {
			r.datagram(run, i, p)
			continue
		}
		q := r.dispatch(run, p)
		if q == nil {
			continue
		}
		q.core.Traffic().RcvdBytes += uint64(len(frame))
		if trains && wire.AlikeLen(p.Opcode) > 0 {
			var taken int
			taken, trains = r.train(q, run, i, prefix)
			i += taken
			r.work += taken
		}
	}
	return i
}

// trainChunk is how many frames of a train are checked before their payload is copied: few
// enough that they are still in the processor's first-level cache.
const trainChunk = 16

// train hands q the frames behind frame i of a run that are like it (wire.Alike); frame i was
// dispatched to q. It returns how many q took, and whether another train of the run may be tried.
func (r *receiver) train(q *QP, run *link.Run, i int, prefix wire.Prefix) (taken int, more bool) {
	frames := run.Frames()
	for {
		first := i + 1 + taken
		n := 0
		for n < trainChunk && first+n < frames && wire.Alike(run.Frame(first+n), run.Frame(first+n-1)) {
			n++
		}
		if n > 0 {
			n = prefix.CheckRun(run.ID+uint16(first), run.Buf[first*run.Size:(first+n)*run.Size], run.Size)
		}
		if n == 0 {
			return taken, true
		}
		r.handOver()
		r.s.current = q
		took := q.core.HandleAlike(r.s.now, run.Buf[first*run.Size:(first+n)*run.Size], run.Size,
			wire.ECNOf(run.TrafficClass))
		r.s.stats.RcvdPkts += uint64(took)
		q.core.Traffic().RcvdBytes += uint64(took * run.Size)
		r.s.applyEffects(q)
		if taken += took; took < n {
			return taken, false
		}
	}
}

// dispatch finds the QP of a decoded packet, and collects consecutive packets of one QP. It
// returns the QP, or nil if the packet was dropped.
func (r *receiver) dispatch(run *link.Run, p *wire.Packet) *QP {
	q := r.qp
	if q == nil || q.num != p.DestQP {
		if q = r.s.qpns.get(p.DestQP); q == nil {
			r.s.stats.DropNoQP++
			return nil
		}
		if r.n > 0 { // r.packets holds packets of another QP before p: hand them over, move p to the front
			kept := *p
			r.handOver()
			r.packets[0] = kept
			p = &r.packets[0]
		}
	}
	if !r.accept(q, run, p) {
		return nil
	}
	r.s.stats.RcvdPkts++
	r.qp = q
	if r.n++; q.peerPort == 0 && r.s.engine.opts.PinSourcePort {
		r.pin(q, run)
	} else if r.n == len(r.packets) {
		r.handOver()
	}
	return q
}

// pin hands over the only collected packet, which is for q and came in run. If the packet advanced
// the connection, q accepts packets from this source port only from now on. Packets that others
// forge do not advance it, unless they know the PSN.
func (r *receiver) pin(q *QP, run *link.Run) {
	expected, unacknowledged := q.core.Reached()
	r.handOver()
	if e, u := q.core.Reached(); e != expected || u != unacknowledged {
		q.peerPort = run.SrcPort
	}
}

// accept checks the fields that do not depend on the QP's state (IBTA 9.6.1): service,
// partition, the peer's address, the local address, and the source port if it is pinned.
func (r *receiver) accept(q *QP, run *link.Run, p *wire.Packet) bool {
	st := &r.s.stats
	switch {
	case p.Opcode.Service() != qp.WireService(q.typ) && !serves(q, p.Opcode):
		st.DropService++
	case p.PKey&0x7FFF != ib.DefaultPKey&0x7FFF:
		st.DropPKey++
	case run.Src != q.path.Dst || run.Dst != q.path.Src:
		st.DropAddress++
	case q.peerPort != 0 && run.SrcPort != q.peerPort:
		st.DropSourcePort++
	default:
		return true
	}
	return false
}

// serves reports whether a packet of another service is for connections, too: SACKs and CNPs.
func serves(q *QP, op wire.Opcode) bool {
	return (op == wire.SACKOpcode || op == wire.CNP) && qp.Reliable(q.typ)
}

// handOver gives the collected packets to their QP.
func (r *receiver) handOver() {
	if r.n == 0 {
		return
	}
	q := r.qp
	r.s.current = q
	q.core.HandlePackets(r.s.now, r.packets[:r.n])
	r.n, r.qp = 0, nil
	r.s.applyEffects(q)
}

// datagram hands a UD packet, which is frame i of run, to its QP or to all QPs of its
// multicast group.
func (r *receiver) datagram(run *link.Run, i int, p *wire.Packet) {
	st := &r.s.stats
	if p.PKey&0x7FFF != ib.DefaultPKey&0x7FFF {
		st.DropPKey++
		return
	}
	if r.n > 0 { // keep the order of arrival: hand over the packets before p, move p to the front
		kept := *p
		r.handOver()
		r.packets[0] = kept
		p = &r.packets[0]
	}
	if p.DestQP == ib.QPNGSI {
		r.s.qp1.receive(r.s, run, p)
		return
	}
	outer := wire.Outer{Src: run.Src, Dst: run.Dst, TrafficClass: run.TrafficClass, HopLimit: run.HopLimit,
		FlowLabel: run.FlowLabel}
	if run.KnownID {
		outer.ID = run.ID + uint16(i)
	}
	var grh [ib.GRHLen]byte
	size := len(run.Frame(i))
	outer.PutGRH(&grh, size)
	if !isMulticast(&run.Dst) {
		r.deliver(r.s.qpns.get(p.DestQP), p, &grh, size)
		return
	}
	members := r.s.groups[run.Dst].members
	if p.DestQP != ib.QPNMulticast || len(members) == 0 { // IBTA 9.6.1.5.1
		st.DropAddress++
		return
	}
	for _, q := range members {
		r.deliver(q, p, &grh, size)
	}
	r.work += len(members) - 1
	r.copied += (len(members) - 1) * len(p.Payload)
}

// deliver hands a datagram, which came in a frame of that size, to one QP.
func (r *receiver) deliver(q *QP, p *wire.Packet, grh *[ib.GRHLen]byte, size int) {
	st := &r.s.stats
	switch {
	case q == nil:
		st.DropNoQP++
	case !qp.Datagram(q.typ):
		st.DropService++
	default:
		st.RcvdPkts++
		q.core.Traffic().RcvdBytes += uint64(size)
		r.s.current = q
		q.core.HandleDatagram(r.s.now, p, grh)
		r.s.applyEffects(q)
	}
}
