package engine

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/offload"
	"github.com/goroce/goroce/roce/internal/slowmem"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/wire"
)

// QP is the engine's state of a queue pair.
type QP struct {
	// Owner is the QP's API object (*roce.QP). The engine does not look at it.
	Owner any

	shard  *Shard
	num    ib.QPN
	typ    ib.QPType
	front  *qp.Front // the posting side; show copies the QP's state to it
	worker func(*mr.PD) *Worker
	places []*Worker // have placements of it, or had some
	remote bool      // the application is in another process and shares only the rings

	rung atomic.Bool // the QP is in the shard's list of rung doorbells

	// Guarded by shard.mu.
	core      *qp.QP // nil once the QP is closed
	app       *app
	peer      *peer // among whose QPs it is ready
	inReady   bool
	next      [numLists]*QP
	peerShard int // the assumed shard of the peer's QP, by which ready QPs are grouped into runs
	timer     timerEntry
	flow      *flow
	path      link.Run // addresses of the packets that it sends
	peerPort  uint16   // UDP source port that its packets must come from; 0: any (unknown, or not pinned)
	offload   offload.QP
}

// QPInit describes a QP to add to a shard.
type QPInit struct {
	Owner any
	// App identifies the application that the QP belongs to, by a comparable value:
	// applications take turns in sending, however many QPs each has. nil is this process.
	App    any
	Remote bool // the application is in another process
	// Config is the QP's configuration; Add fills in the fields that the engine provides.
	Config qp.Config
	Front  *qp.Front
	// Worker returns the worker for the slow memory of a domain. It is called when the QP meets such memory.
	Worker func(*mr.PD) *Worker
}

// Num returns the QP number.
func (q *QP) Num() ib.QPN { return q.num }

// Type returns the transport service.
func (q *QP) Type() ib.QPType { return q.typ }

// Shard returns the shard that the QP belongs to.
func (q *QP) Shard() *Shard { return q.shard }

// Room reports whether the shard has a free QP number.
func (s *Shard) Room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.qpns.room()
}

// Add makes a QP in RESET. The caller has checked Room.
func (s *Shard) Add(init QPInit) *QP {
	cfg := init.Config
	q := &QP{Owner: init.Owner, shard: s, typ: cfg.Type, front: init.Front, worker: init.Worker, remote: init.Remote}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.num = s.qpns.add(q)
	q.front.Num = q.num
	q.app = s.ready.enter(init.App)
	q.peer = &q.app.rest
	cfg.Num, cfg.Stats, cfg.Limits = q.num, &s.stats.Stats, &s.limits
	cfg.Due, cfg.AHs, cfg.SRQs = &s.due, ahTable{&s.ahs}, srqTable{&s.srqs}
	cfg.Trains = cfg.Trains && s.engine.caps.RunFrames > 1
	q.core = qp.New(cfg)
	q.core.Owner = q
	return q
}

// Close removes the QP from the shard. When it returns, the engine uses nothing of the QP any
// more, and when gone is closed its worker writes nothing for it. A pending ACK is still sent.
func (q *QP) Close() (gone <-chan struct{}) {
	s := q.shard
	s.holdSleep()
	defer s.releaseSleep()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock()
	s.resetSafely(q)
	q.core.ReleaseRecorder()
	s.setFlow(q, nil)
	s.deadlines.remove(q)
	s.ready.leave(q.app)
	s.qpns.remove(q.num)
	q.core = nil
	s.wake() // QPs that waited for its destination may send now
	return q.forget()
}

// ForgetSRQ makes an XRC target forget an SRQ. The caller holds the lock of the shard.
func (q *QP) ForgetSRQ(srq *qp.SRQ) {
	q.shard.visited++
	q.core.ForgetSRQ(srq)
}

// placedBy notes that a worker gets placements of the QP. Only an XRC target whose XRC domain several
// applications share has more than one worker. Workers that have ended are removed from the list.
func (q *QP) placedBy(w *Worker) {
	if slices.Contains(q.places, w) {
		return
	}
	q.places = append(slices.DeleteFunc(q.places, func(old *Worker) bool { return isClosed(old.Done()) }), w)
}

// forget drops the placements of a QP that was reset. It returns a channel that is closed when the
// workers write nothing for it any more.
func (q *QP) forget() <-chan struct{} {
	gone := (<-chan struct{})(slowmem.NoTurn)
	for _, w := range q.places {
		gone = both(gone, w.Forget(q))
	}
	return gone
}

// both returns a channel that is closed when a and b are.
func both(a, b <-chan struct{}) <-chan struct{} {
	switch {
	case isClosed(a):
		return b
	case isClosed(b):
		return a
	}
	c := make(chan struct{})
	go func() {
		<-a
		<-b
		close(c)
	}()
	return c
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Modify runs the Modify verb. path is the addressing of the address vector, used if mask has
// AttrAV. open is false if the QP is closed. If Modify resets the QP, no worker writes anything for
// the QP any more when gone is closed.
func (q *QP) Modify(attr *ib.QPAttr, mask ib.QPAttrMask, path *link.Run) (gone <-chan struct{}, open bool, err error) {
	gone = slowmem.NoTurn
	s := q.shard
	ends := mask&ib.AttrState != 0 && (attr.State == ib.StateErr || attr.State == ib.StateReset)
	if ends {
		s.holdSleep()
		defer s.releaseSleep()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.core == nil {
		return gone, false, nil
	}
	s.clock()
	if ends {
		s.tx.lastACK(q)
	}
	if err := q.core.Modify(s.now, attr, mask); err != nil {
		return gone, true, err
	}
	if mask&ib.AttrAV != 0 {
		s.setPath(q, path)
	}
	if q.core.State() == ib.StateReset {
		s.setFlow(q, nil)
		q.peerPort = 0
		gone = q.forget()
	}
	s.applyEffects(q)
	s.wake()
	return gone, true, nil
}

// Query returns the current attributes, and false if the QP is closed.
func (q *QP) Query() (a ib.QPAttr, open bool) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if q.core == nil {
		return a, false
	}
	return q.core.Query(), true
}

// Peer returns the destination of a connected QP. The caller holds the lock of the shard.
func (q *QP) Peer() (ib.GID, ib.QPN) { return q.core.AH().DGID, q.core.DestQPN() }

// Failure returns the causes of failures, and false if the QP is closed.
func (q *QP) Failure() (failed, refused ib.Failure, open bool) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if q.core == nil {
		return failed, refused, false
	}
	failed, refused = q.core.Failure()
	return failed, refused, true
}

// Path is the way to a QP's destination.
type Path struct {
	qp.Path
	QPs int // of the application, to this destination, that share the window; 0: the service is unreliable
}

// Traffic returns what the QP has sent and received, and the state of the way to its destination. It returns false if
// the QP is closed.
func (q *QP) Traffic() (traffic qp.Traffic, path Path, open bool) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if q.core == nil {
		return traffic, path, false
	}
	path.Path = q.core.Path()
	if q.flow != nil {
		path.QPs = q.flow.qps
	}
	return q.core.Counted(), path, true
}

// setPath sets the addressing of a QP, and finds the congestion account of its destination.
func (s *Shard) setPath(q *QP, path *link.Run) {
	s.ready.remove(q) // applyEffects puts it back, into the queue of its new peerShard
	q.peerShard = link.ShardOf(q.core.DestQPN(), peerShards)
	q.path = *path
	q.peerPort = 0
	q.path.SrcPort = s.sourcePort(path.FlowLabel, q.num, q.core.DestQPN())
	if !qp.Reliable(q.typ) {
		return
	}
	s.setFlow(q, &path.Dst)
	ask := &q.core.Arrivals().AskRepeats
	if *ask = 0; s.watched(q) {
		*ask = offload.Lead
	}
}

// sourcePort returns the UDP source port of packets between two QPs. On a link with one fixed
// source port, packets of different QPs to one destination have the same path and share runs.
func (s *Shard) sourcePort(flowLabel uint32, local, remote ib.QPN) uint16 {
	if p := s.engine.caps.FixedSrcPort; p != 0 {
		return p
	}
	return sourcePort(flowLabel, local, remote)
}

// sourcePort spreads connections over the paths of a network: it derives a port from the
// flow label, or from the pair of QP numbers, so that both ends derive the same (Linux,
// rdma_get_udp_sport).
func sourcePort(flowLabel uint32, local, remote ib.QPN) uint16 {
	if flowLabel == 0 {
		v := uint64(local) * uint64(remote)
		v ^= v >> 20
		v ^= v >> 40
		flowLabel = uint32(v) & 0xFFFFF
	}
	return uint16(0xC000 | flowLabel&0x3FFF ^ flowLabel&0xFC000>>14)
}

// flow is an application's congestion account of a destination, shared by its QPs to it.
type flow struct {
	peer    peer
	account *qp.Flow
	dst     ib.GID
	qps     int
	trial   offload.Trial

	aloneSeen  uint32     // value of aloneTable.changes when aloneUntil was read
	aloneUntil ib.Instant // until when each packet goes in a run of its own; 0 if it need not

	ecn       wire.ECN // in what is sent there, but for what address vectors say
	peersSeen uint32   // value of peerTable.changes when it was last looked at
}

// setFlow moves q to its application's congestion account of dst, or to none if dst is nil. QPs
// that waited for room in the old account may use the room that q leaves. q is not ready then.
func (s *Shard) setFlow(q *QP, dst *ib.GID) {
	s.ready.remove(q)
	q.peer = &q.app.rest
	if old := q.flow; old != nil {
		q.offload.Forget(&old.trial)
		q.core.SetFlow(nil)
		q.flow = nil
		s.wakeFlowWaiters(old)
		if old.qps--; old.qps == 0 {
			delete(q.app.flows, old.dst)
		}
	}
	if dst == nil {
		return
	}
	f := q.app.flows[*dst]
	if f == nil {
		f = &flow{account: qp.NewFlow(s.engine.opts.Flow), dst: *dst}
		f.peer.init()
		q.app.flows[*dst] = f
	}
	f.qps++
	q.flow, q.peer = f, &f.peer
	q.core.SetFlow(f.account)
}

// watched reports whether package offload must check that q's packets in runs arrive: with
// IPv4, the kernel or the NIC numbers the identifications of a run's frames.
func (s *Shard) watched(q *QP) bool {
	return s.engine.caps.Segments && q.path.Src.Is4() && q.flow != nil && !s.alone(q.flow)
}

// observeOffload updates the offload trial of q's destination from what is known of the arrival of q's packets.
func (s *Shard) observeOffload(q *QP, state ib.QPState) {
	if q.flow == nil || !s.engine.caps.Segments || s.alone(q.flow) {
		return
	}
	t := &q.flow.trial
	v := q.offload.Observe(t, q.core.Arrivals(), q.core.Fate)
	s.stats.OffloadTrials += uint64(v.Trials)
	if v.Proven {
		t.End()
		s.giveUpRuns(q.flow.dst)
	}
	q.flow.account.SetProbes(!t.On())
	if state == ib.StateErr {
		q.offload.Forget(t)
	}
}

// giveUpRuns makes packets to dst go in runs of one from now on.
func (s *Shard) giveUpRuns(dst ib.GID) {
	if f := s.engine.opts.OnOffloadOff; s.engine.alone.add(dst, s.now) && f != nil {
		f(dst)
	}
}

// runLimit returns the maximum number of frames of the run that p goes into.
func (s *Shard) runLimit(q *QP, p *qp.TxPacket, path *link.Run) int {
	switch {
	case !s.engine.caps.Segments || !path.Src.Is4():
		return math.MaxInt
	case q.flow == nil: // UC and UD have no acknowledgements to judge by
		if s.now < s.engine.alone.get(path.Dst) {
			return 1
		}
		return math.MaxInt
	case s.alone(q.flow):
		return 1
	}
	most, suspected := q.offload.RunLimit(&q.flow.trial, p)
	if suspected {
		s.stats.OffloadTrials++
		q.flow.account.SetProbes(false)
	}
	return most
}
