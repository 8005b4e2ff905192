package roce

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
)

// shard is one loop over one link: it owns QPs, their timers and the destinations.
// All of it is guarded by mu, which the loop holds for a step at a time; verbs that
// change a QP take it in between. Nobody holds the mu of two shards.
type shard struct {
	dev  *Device
	id   int
	link link.Link
	mail mailbox // what came by other shards' links

	mu        sync.Mutex
	limits    qp.Limits // of the port's QPs
	qpns      *qpnTable
	deadlines deadlines
	ready     schedule // of QPs that may have packets to send
	ahs       ahTable
	srqs      srqTable
	groups    map[ib.GID]group
	gsi       gsiTable
	due       qp.Due // CQs and SRQs with something to tell
	rx        receiver
	tx        transmitter
	offload   offload
	stats     Stats
	closed    bool

	poller poller
	breath breath // of whoever drives

	tenants Bells // of QPs whose application is in another process; nil for none

	answers answers // of workers
	errands errands // for them

	bellMu   sync.Mutex
	bells    []*QP // rung since the last step
	spare    []*QP // the other buffer of bells
	ringing  func(*QP)
	sleeping atomic.Bool

	waiting  sync.Mutex   // held while the loop waits on the link; taken before mu
	visitors atomic.Int32 // who want it
}

// flowEntry is an application's account of a destination, and the number of QPs that use
// it.
type flowEntry struct {
	flow  *qp.Flow
	dst   ib.GID
	qps   int
	trial trial
}

func newShard(d *Device, id int, l link.Link, gen uint8) *shard {
	s := &shard{dev: d, id: id, link: l, limits: qp.Limits{GIDs: len(d.caps.Local), MTU: d.maxMTU, MaxRdAtomic: maxRdAtomic},
		qpns: newQPNTable(gen, id, len(d.shards)), ready: schedule{shares: map[Tenant]*share{}}, groups: map[ib.GID]group{}}
	s.gsi.init(s)
	s.ringing = s.ring
	s.poller.init()
	s.rx.init(s)
	s.tx.init(s)
	s.offload.init(d)
	s.errands.init(s)
	return s
}

// run drives the shard until the link is closed. When idle it spins a little,
// for latency, then sleeps on the link. While an application polls it stands
// aside. It ends early when an errand lasts too long, and another goroutine goes on.
func (s *shard) run() {
	var spin spinner
	spin.init(s.dev.opts.Spin)
	for {
		if s.poller.wanted.Load() {
			s.errands.putOff()
			s.standAside()
			spin.reset()
			continue
		}
		now := s.dev.now()
		busy := s.turnAtHome(now)
		if ran, relieved := s.runErrand(); relieved {
			return
		} else if ran || busy {
			spin.busy(now)
			if s.breath.due(now) {
				runtime.Gosched()
			}
			continue
		}
		if spin.idle(now) && s.giveWay(now) {
			continue
		}
		if err := s.sleep(now); err != nil {
			s.linkDown(err)
			s.dev.done.Done()
			return
		}
	}
}

// giveWay lets others run between two looks for work, and reports whether to look once
// more. For goroutines it does so each time: those that the shard has woken, or that wait
// for its mutex, are queued behind this one, and other threads take long to fetch them.
// With tenants it is mostly other processes that wait, for this processor even, and
// Gosched would wake a thread: once a breath is enough.
func (s *shard) giveWay(now ib.Instant) bool {
	t := s.tenantBells()
	if t == nil || s.breath.due(now) {
		runtime.Gosched()
		return true
	}
	return t.GiveWay()
}

// sleep waits for a frame, a doorbell, mail, an answer or a deadline. The handshake is
// that of the rings: announce the sleep, then look once more.
func (s *shard) sleep(now ib.Instant) error {
	s.sleeping.Store(true)
	defer s.sleeping.Store(false)
	if t := s.tenantBells(); t != nil {
		defer t.Awake()
		if t.Sleep() {
			return nil
		}
	}
	s.waiting.Lock()
	defer s.waiting.Unlock()
	if s.visitors.Load() > 0 {
		return nil
	}
	wait, blocked := s.idle(now)
	if wait == 0 {
		return nil
	}
	return s.link.Wait(wait, blocked)
}

// visit keeps the loop from waiting on the link until leave: other goroutines may send
// then, under mu. Without, they would use the link during Wait, which is not for two.
func (s *shard) visit() {
	s.visitors.Add(1)
	if s.sleeping.Load() {
		s.link.Wake()
	}
	s.waiting.Lock()
	s.visitors.Add(-1)
}

// leave ends a visit.
func (s *shard) leave() { s.waiting.Unlock() }

func (s *shard) tenantBells() Bells {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenants
}

// idle returns how long there is nothing to do: 0 if there is something,
// negative for no limit. blocked says that the link must become writable first.
func (s *shard) idle(now ib.Instant) (wait time.Duration, blocked bool) {
	s.bellMu.Lock()
	rung := len(s.bells) > 0 || s.mail.some.Load() || s.answers.some.Load()
	s.bellMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := min(s.deadlines.earliest(), s.link.Deadline())
	switch {
	case s.closed: // doorbells stay unanswered; the link ends the loop
		return -1, false
	case rung, at <= now, !s.ready.empty() && !s.tx.blocked:
		return 0, false
	case at == ib.Never:
		return -1, s.tx.blocked
	}
	return time.Duration(at - now), s.tx.blocked
}

// linkDown tells the application that the device is of no more use, unless it
// closed the device itself.
func (s *shard) linkDown(err error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if !closed && !errors.Is(err, link.ErrClosed) && !s.dev.fatal.Swap(true) {
		s.dev.events.put(ib.Event{Type: ib.EventDeviceFatal})
	}
}

// deadline is when step has something to do without outside help.
func (s *shard) deadline() ib.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(s.deadlines.earliest(), s.link.Deadline())
}

// step is one turn: receive a batch, take doorbells, run timers, send. It reports
// whether anything happened.
func (s *shard) step(now ib.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn(now)
}

// turn is step for who holds mu.
func (s *shard) turn(now ib.Instant) bool {
	if s.closed {
		return false
	}
	busy := s.rx.receive(now)
	busy = s.takeBells(now) || busy
	busy = s.takeAnswers(now) || busy
	busy = s.runTimers(now) || busy
	return s.tx.drain(now) || busy
}

// ring tells the shard that q has new work. Any goroutine may call it.
func (s *shard) ring(q *QP) {
	if q.rung.Swap(true) {
		return
	}
	s.bellMu.Lock()
	s.bells = append(s.bells, q)
	s.bellMu.Unlock()
	if s.sleeping.Load() {
		s.link.Wake()
	}
}

func (s *shard) takeBells(now ib.Instant) bool {
	if s.tenants != nil {
		s.tenants.Take(s.ringing)
	}
	s.bellMu.Lock()
	bells := s.bells
	s.bells, s.spare = s.spare[:0], bells
	s.bellMu.Unlock()
	for i, q := range bells {
		bells[i] = nil
		q.rung.Store(false)
		if q.core != nil {
			q.rearm()
			q.core.Doorbell(now)
			s.after(q)
		}
	}
	return len(bells) > 0
}

func (s *shard) runTimers(now ib.Instant) bool {
	busy := false
	for q := s.deadlines.pop(now); q != nil; q = s.deadlines.pop(now) {
		if q.core.Deadline() <= now {
			q.core.HandleTimeout(now)
			busy = true
		}
		s.after(q)
	}
	return busy
}

// after carries on after any input to q: it may have left something to its worker,
// may want to send, has a new deadline, and may have made completions and events.
func (s *shard) after(q *QP) {
	s.handPlacements(q)
	s.ready.push(q)
	s.deadlines.want(q, q.core.Deadline())
	s.notify(q)
	s.judge(q)
	s.admit(q.flow)
}

// admit hands the turn to QPs that waited for room at a destination.
func (s *shard) admit(f *flowEntry) {
	if f == nil {
		return
	}
	for core := f.flow.Next(); core != nil; core = f.flow.Next() {
		s.ready.push(core.Owner.(*QP))
	}
}

// notify passes on what q and the queues that it uses have to tell.
func (s *shard) notify(q *QP) {
	s.tell()
	for t, ok := q.core.TakeEvent(); ok; t, ok = q.core.TakeEvent() {
		s.event(q.pd.tenant, ib.Event{Type: t, QP: q})
	}
	s.mirror(q)
}

// tell passes on what CQs and SRQs have to tell.
func (s *shard) tell() {
	for core := s.due.CQ(); core != nil; core = s.due.CQ() {
		c := core.Owner.(*CQ)
		if core.TakeNotify() {
			c.raise()
		}
		if core.TakeError() {
			s.event(c.tenant, ib.Event{Type: ib.EventCQErr, CQ: c})
		}
	}
	for core := s.due.SRQ(); core != nil; core = s.due.SRQ() {
		q := core.Owner.(*SRQ)
		for t, ok := core.TakeEvent(); ok; t, ok = core.TakeEvent() {
			s.event(q.pd.tenant, ib.Event{Type: t, SRQ: q})
		}
	}
}

// mirror shows q's state to the posting side. A receive that was posted while the
// state went to ERR may have missed the flush; ring the bell for it.
func (s *shard) mirror(q *QP) {
	state := q.core.State()
	if q.front.SetState(state) != state && state == ib.Err {
		s.ring(q)
	}
}

// event passes an event on: to the tenant that it is for, or to who has opened the
// device.
func (s *shard) event(t Tenant, e ib.Event) {
	if t != nil {
		t.Event(e)
	} else if !s.dev.events.put(e) {
		s.stats.EventsLost++
	}
}

// add makes the core of a new QP.
func (s *shard) add(q *QP, cfg qp.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.typ == ib.GSI {
		q.num = ib.QPNGSI
		s.gsi.add(q)
	} else {
		q.num = s.qpns.add(q)
		s.dev.byNum.Store(q.num, q)
	}
	q.front.Num = q.num
	q.share = s.ready.enter(q.pd.tenant)
	cfg.Num, cfg.Stats, cfg.Limits = q.num, &s.stats.Stats, &s.limits
	cfg.Due, cfg.AHs, cfg.SRQs = &s.due, &s.ahs, &s.srqs
	q.core = qp.New(cfg)
	q.core.Owner = q
}

// drop forgets a QP.
func (s *shard) drop(q *QP) {
	s.visit()
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx.lastACK(s.clock(), q)
	var toReset = ib.QPAttr{State: ib.Reset}
	if err := q.core.Modify(0, &toReset, ib.AttrState); err != nil {
		panic(fmt.Sprintf("roce: QP %#x cannot be reset: %v", uint32(q.num), err)) // RESET is legal from everywhere
	}
	s.setFlow(q, nil)
	s.deadlines.remove(q)
	q.share.ready.remove(q)
	s.ready.leave(q.share)
	if q.typ == ib.GSI {
		s.gsi.remove(q)
	} else {
		s.qpns.remove(q.num)
		s.dev.byNum.Delete(q.num)
	}
	q.core = nil
	s.kick() // others may have its turn
}

// modify runs the Modify verb.
func (s *shard) modify(q *QP, attr *ib.QPAttr, mask ib.QPAttrMask) error {
	ends := mask&ib.AttrState != 0 && (attr.State == ib.Err || attr.State == ib.Reset)
	if ends {
		s.visit()
		defer s.leave()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.core == nil {
		return q.err("modify QP")
	}
	gids := *s.dev.gids.Load()
	if mask&ib.AttrAV != 0 {
		if err := checkSource(fmt.Sprintf("modify QP %#x", uint32(q.num)), &attr.AH, gids); err != nil {
			return err
		}
	}
	if ends {
		s.tx.lastACK(s.clock(), q)
	}
	if err := q.core.Modify(s.clock(), attr, mask); err != nil {
		return err
	}
	if mask&ib.AttrAV != 0 {
		s.setPath(q, gids)
	}
	if q.core.State() == ib.Reset {
		s.setFlow(q, nil)
	}
	s.after(q)
	s.kick()
	return nil
}

// clock is the time that verbs see: in virtual time, that of the last step.
func (s *shard) clock() ib.Instant {
	if s.dev.opts.Manual {
		return s.rx.now
	}
	return s.dev.now()
}

// kick ends the loop's sleep: there is something to send.
func (s *shard) kick() {
	if s.sleeping.Load() {
		s.link.Wake()
	}
}

// setPath works out the addressing of a QP, and finds its destination's account.
func (s *shard) setPath(q *QP, gids gidTable) {
	q.share.ready.remove(q) // after puts it in its lane
	q.lane = link.ShardOf(q.core.DestQPN(), readyLanes)
	ah := q.core.AH()
	q.path = gids.path(ah)
	q.path.SrcPort = s.sourcePort(ah.FlowLabel, q.num, q.core.DestQPN())
	if qp.Reliable(q.typ) {
		s.setFlow(q, &ah.DGID)
	}
}

// defaultHops is the hop limit of Linux routes.
const defaultHops = 64

// sourcePort is where packets between two QPs leave from. On a link that has one
// port for all, those of different QPs are of one path, and share runs.
func (s *shard) sourcePort(flowLabel uint32, local, remote ib.QPN) uint16 {
	if p := s.dev.caps.FixedSrcPort; p != 0 {
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

// setFlow moves q to its application's account of a destination, nil for none. What room
// it had at the old one is for those who wait there.
func (s *shard) setFlow(q *QP, dst *ib.GID) {
	if old := q.flow; old != nil {
		q.offload.forget(&old.trial)
		q.core.SetFlow(nil)
		q.flow = nil
		s.admit(old)
		if old.qps--; old.qps == 0 {
			delete(q.share.flows, old.dst)
		}
	}
	if dst == nil {
		return
	}
	f := q.share.flows[*dst]
	if f == nil {
		f = &flowEntry{flow: qp.NewFlow(), dst: *dst}
		q.share.flows[*dst] = f
	}
	f.qps++
	q.flow = f
	q.core.SetFlow(f.flow)
}
