package engine

import (
	"math"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/offload"
	"github.com/goroce/goroce/roce/link"
)

// QP is what the engine keeps about a queue pair.
type QP struct {
	// Owner is whose QP it is: the object of the API. The engine does not look at it.
	Owner any

	shard  *Shard
	num    ib.QPN
	typ    ib.QPType
	front  *qp.Front // is shown the state
	worker func() *Worker
	remote bool // the application is in another process and shares only the rings

	rung atomic.Bool // in the shard's list of doorbells

	// Guarded by shard.mu.
	core      *qp.QP // nil once the QP is closed
	app       *app
	inReady   bool
	nextReady *QP
	peerShard int // by which runs are sorted: the shard of the peer's device that it goes to
	timer     timerEntry
	flow      *flow
	path      link.Run // the addressing of what it sends
	peerPort  uint16   // UDP source port that packets must have; 0 while it is not known, or any will do
	offload   offload.QP
}

// QPInit says what QP to add to a shard.
type QPInit struct {
	Owner any
	// App is the application that the QP is of, a comparable value: applications take
	// turns, however many QPs each has. nil is this process.
	App    any
	Remote bool // the application is in another process
	// Config is completed by the shard with what is the engine's.
	Config qp.Config
	Front  *qp.Front
	Worker func() *Worker // who touches slow memory; called when there is any
}

// Num returns the QP number.
func (q *QP) Num() ib.QPN { return q.num }

// Type returns the transport service.
func (q *QP) Type() ib.QPType { return q.typ }

// Shard returns the shard that the QP belongs to.
func (q *QP) Shard() *Shard { return q.shard }

// Core returns the state machine; the caller holds the shard's lock (Engine.Each). It is
// nil if the QP is closed.
func (q *QP) Core() *qp.QP { return q.core }

// Room reports whether the shard has a number left for a QP.
func (s *Shard) Room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.qpns.room()
}

// Add makes a QP in RESET; there is room.
func (s *Shard) Add(init QPInit) *QP {
	cfg := init.Config
	q := &QP{Owner: init.Owner, shard: s, typ: cfg.Type, front: init.Front, worker: init.Worker, remote: init.Remote}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.num = s.qpns.add(q)
	q.front.Num = q.num
	q.app = s.ready.enter(init.App)
	cfg.Num, cfg.Stats, cfg.Limits = q.num, &s.stats.Stats, &s.limits
	cfg.Due, cfg.AHs, cfg.SRQs = &s.due, ahTable{&s.ahs}, srqTable{&s.srqs}
	cfg.Trains = cfg.Trains && s.engine.caps.RunFrames > 1
	q.core = qp.New(cfg)
	q.core.Owner = q
	return q
}

// Close forgets the QP: nothing of it is looked at any more when it returns. An ACK that
// is owed still leaves.
func (q *QP) Close() {
	s := q.shard
	s.holdSleep()
	defer s.releaseSleep()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock()
	s.resetSafely(q)
	s.setFlow(q, nil)
	s.deadlines.remove(q)
	q.app.ready.remove(q)
	s.ready.leave(q.app)
	s.qpns.remove(q.num)
	q.core = nil
	s.wake() // others may have its turn
}

// Modify runs the Modify verb. path is the addressing of the address vector, which is
// taken over if mask says so. It returns false if the QP is closed.
func (q *QP) Modify(attr *ib.QPAttr, mask ib.QPAttrMask, path *link.Run) (open bool, err error) {
	s := q.shard
	ends := mask&ib.AttrState != 0 && (attr.State == ib.Err || attr.State == ib.Reset)
	if ends {
		s.holdSleep()
		defer s.releaseSleep()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.core == nil {
		return false, nil
	}
	s.clock()
	if ends {
		s.tx.lastACK(q)
	}
	if err := q.core.Modify(s.now, attr, mask); err != nil {
		return true, err
	}
	if mask&ib.AttrAV != 0 {
		s.setPath(q, path)
	}
	if q.core.State() == ib.Reset {
		s.setFlow(q, nil)
		q.peerPort = 0
	}
	s.after(q)
	s.wake()
	return true, nil
}

// Query returns the attributes as they stand, and false if the QP is closed.
func (q *QP) Query() (a ib.QPAttr, open bool) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if q.core == nil {
		return a, false
	}
	return q.core.Query(), true
}

// setPath takes over the addressing of a QP, and finds the account of its destination.
func (s *Shard) setPath(q *QP, path *link.Run) {
	q.app.ready.remove(q) // after puts it where it belongs
	q.peerShard = link.ShardOf(q.core.DestQPN(), peerShards)
	q.path = *path
	q.peerPort = 0
	q.path.SrcPort = s.sourcePort(path.FlowLabel, q.num, q.core.DestQPN())
	if !qp.Reliable(q.typ) {
		return
	}
	s.setFlow(q, &path.Dst)
	q.core.AskRepeats(0)
	if s.watched(q) {
		q.core.AskRepeats(offload.Lead)
	}
}

// sourcePort is where packets between two QPs leave from. On a link that has one
// port for all, those of different QPs are of one path, and share runs.
func (s *Shard) sourcePort(flowLabel uint32, local, remote ib.QPN) uint16 {
	if p := s.engine.caps.FixedSrcPort; p != 0 {
		return p
	}
	return sourcePort(flowLabel, local, remote)
}

// sourcePort spreads connections over the paths of a network: a port from the
// flow label, or from the pair of QP numbers, the same at both ends (Linux,
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

// flow is an application's account of a destination, and the number of QPs that use it.
type flow struct {
	account *qp.Flow
	dst     ib.GID
	qps     int
	trial   offload.Trial

	aloneSeen  uint32     // the changes of the engine's table that aloneUntil is of
	aloneUntil ib.Instant // packets go alone until then; 0 if they need not
}

// setFlow moves q to its application's account of a destination, nil for none. What room
// it had at the old one is for those who wait there.
func (s *Shard) setFlow(q *QP, dst *ib.GID) {
	if old := q.flow; old != nil {
		q.offload.Forget(&old.trial)
		q.core.SetFlow(nil)
		q.flow = nil
		s.admit(old)
		if old.qps--; old.qps == 0 {
			delete(q.app.flows, old.dst)
		}
	}
	if dst == nil {
		return
	}
	f := q.app.flows[*dst]
	if f == nil {
		f = &flow{account: qp.NewFlow(), dst: *dst}
		q.app.flows[*dst] = f
	}
	f.qps++
	q.flow = f
	q.core.SetFlow(f.account)
}

// watched reports whether it must be seen if what q sends in runs arrives: IPv4 has an
// identification, which somebody else numbers.
func (s *Shard) watched(q *QP) bool {
	return s.engine.caps.Segments && q.path.Src.Is4() && q.flow != nil && !s.alone(q.flow)
}

// judge looks at what became of q's packets.
func (s *Shard) judge(q *QP, e *qp.Effects) {
	if q.flow == nil || !s.engine.caps.Segments || s.alone(q.flow) {
		return
	}
	t := &q.flow.trial
	v := q.offload.Observe(t, e.Requests, e.Answers)
	s.stats.OffloadTrials += uint64(v.Trials)
	if v.Proven {
		t.End()
		s.giveUpRuns(q.flow.dst)
	}
	q.flow.account.SetProbes(!t.On())
	if e.State == ib.Err {
		q.offload.Forget(t)
	}
}

// giveUpRuns lets packets to dst go alone from now on.
func (s *Shard) giveUpRuns(dst ib.GID) {
	if f := s.engine.opts.OnOffloadOff; s.engine.alone.add(dst, s.now) && f != nil {
		f(dst)
	}
}

// runLimit returns how many frames at most the run may have that p goes into.
func (s *Shard) runLimit(q *QP, p *qp.TxPacket, path *link.Run) int {
	switch {
	case !s.engine.caps.Segments || !path.Src.Is4():
		return math.MaxInt
	case q.flow == nil: // UC and UD: nothing is heard of them
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
