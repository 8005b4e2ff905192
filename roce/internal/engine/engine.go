package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/ipid"
	"github.com/goroce/goroce/roce/internal/slowmem"
	"github.com/goroce/goroce/roce/link"
)

// Options say how the loops run.
type Options struct {
	Rand   *rand.Rand        // source of QP numbers
	Spin   time.Duration     // how long an idle loop looks for work before it sleeps, at most
	Manual bool              // no goroutine is started: the owner calls Step, and Link.Wake tells it when
	Clock  func() ib.Instant // with Manual, the time between two Steps; nil: that of the last Step
	Limits qp.Limits         // initial limits of the port's QPs
	Flow   qp.FlowConfig     // what a Flow to a destination begins with
	// PinSourcePort makes connected QPs accept packets from one UDP source port only: the
	// port of the first packet that advanced the connection.
	PinSourcePort bool
	// OnOffloadOff, if not nil, is called with the peer for which runs were given up. It must
	// not block, and not call the engine.
	OnOffloadOff func(peer ib.GID)
	// OnStall, if not nil, is called when a shard takes a turn stalled or more later than it should have, likewise.
	OnStall func(late time.Duration)
}

// Owner is implemented by package device, which holds the API objects of the engine's QPs, CQs and
// SRQs. Its methods are called per event, never per packet, under the lock of a shard: they must
// neither block nor call the engine.
type Owner interface {
	// QPFailed takes the causes when a QP goes to ERR or SQE.
	QPFailed(q *QP, failed, refused ib.Failure)
	// QPEvent takes an asynchronous event of a QP.
	QPEvent(q *QP, t ib.EventType)
	// CQNotify reports a completion for which the CQ was armed, CQError that the CQ has
	// overrun.
	CQNotify(c *qp.CQ)
	CQError(c *qp.CQ)
	// SRQEvent takes an asynchronous event of an SRQ.
	SRQEvent(s *qp.SRQ, t ib.EventType)
	// Fault reports that memory of q's application is not mapped at addr; the engine abandons
	// q (qp.QP.Abandon). If Fault returns false, the process cannot continue and panics.
	Fault(q *QP, addr uintptr) bool
	// LinkDown reports that a link has failed for good.
	LinkDown(err error)
}

// Engine runs the loops of one device, one for each link.
type Engine struct {
	opts    Options
	owner   Owner
	caps    link.Caps // of the first link; the others have the same limits and addresses
	shards  []*Shard
	origin  time.Time
	alone   aloneTable
	peers   peerTable
	running sync.WaitGroup
}

// New returns the engine of a device that has its addresses on these links. Start starts
// its loops.
func New(links []link.Link, o Options, owner Owner) (*Engine, error) {
	if err := checkLinks(links); err != nil {
		return nil, err
	}
	e := &Engine{opts: o, owner: owner, caps: links[0].Caps(), origin: time.Now()}
	e.peers.init(o.Rand)
	e.shards = make([]*Shard, len(links))
	trackers := make([]*ipid.Tracker, len(links))
	for i, l := range links {
		e.shards[i] = newShard(e, i, l, len(links))
		trackers[i] = &e.shards[i].rx.ids
	}
	if len(links) > 1 {
		ipid.Share(trackers)
	}
	return e, nil
}

// checkLinks returns an error if links cannot serve one device together.
func checkLinks(links []link.Link) error {
	const op = "open device"
	n := len(links)
	if n < 1 || n > link.MaxShards || n&(n-1) != 0 {
		return driver.Refuse(op, "links", n, fmt.Sprintf("1 to %d, a power of two", link.MaxShards), ib.ErrInvalid)
	}
	first := links[0].Caps()
	for i, l := range links[1:] {
		c := l.Caps()
		if c.MTU != first.MTU || c.RunFrames != first.RunFrames || c.RunBytes != first.RunBytes ||
			!slices.Equal(c.Local, first.Local) {
			return driver.Refuse(op, fmt.Sprintf("link %d", i+1), c.Name,
				"the addresses, MTU and run limits of link 0", ib.ErrInvalid)
		}
	}
	return nil
}

// Start starts the loops, each on a goroutine of its own. With Options.Manual it starts none.
func (e *Engine) Start() {
	if e.opts.Manual {
		return
	}
	for _, s := range e.shards {
		e.running.Add(1)
		go s.run()
	}
}

// Close ends the loops and closes the links. The caller has closed all QPs.
func (e *Engine) Close() error {
	e.Each(func(s *Shard) { s.closed = true })
	var errs []error
	for _, s := range e.shards {
		s.LeavePolling()
		errs = append(errs, s.link.Close())
	}
	e.running.Wait()
	return errors.Join(errs...)
}

// Step drives an engine without loops: one turn of each shard at now. It reports whether
// there may be more to do at once.
func (e *Engine) Step(now ib.Instant) (more bool) {
	for _, s := range e.shards {
		more = s.Step(now) || more
	}
	return more
}

// Deadline returns when Step must be called next if nothing arrives before.
func (e *Engine) Deadline() ib.Instant {
	at := driver.Never
	for _, s := range e.shards {
		at = min(at, s.deadline())
	}
	return at
}

// Now returns the time of an engine that runs in real time (without Options.Manual).
func (e *Engine) Now() ib.Instant { return e.now() }

func (e *Engine) now() ib.Instant { return ib.Instant(time.Since(e.origin)) }

// Clock returns the time with which completions are stamped.
func (e *Engine) Clock() ib.Instant {
	s := e.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock()
}

// Shards returns the shards, by number.
func (e *Engine) Shards() []*Shard { return e.shards }

// several reports whether there is more than one shard.
func (e *Engine) several() bool { return len(e.shards) > 1 }

// Each calls f for one shard after the other, under the shard's lock.
func (e *Engine) Each(f func(*Shard)) {
	for _, s := range e.shards {
		s.Locked(func() { f(s) })
	}
}

// Quiesce returns when every turn that began before the call has ended: no loop touches
// memory any more that was deregistered before.
func (e *Engine) Quiesce() { e.Each(func(*Shard) {}) }

// NewLock returns the lock of a CQ or SRQ that the QPs of all shards may use, nil if
// there is one shard.
func (e *Engine) NewLock() sync.Locker {
	if e.several() {
		return new(sync.Mutex)
	}
	return nil
}

// NewWorker returns a worker for the slow memory of QPs.
func (e *Engine) NewWorker(o slowmem.Options) *Worker {
	return slowmem.New(o, e.opts.Manual, e.now, e.answer)
}
