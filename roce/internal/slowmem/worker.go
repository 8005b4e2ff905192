// Package slowmem reads and writes memory that is not direct (mr.Memory): that of other
// processes, which may take for ever. Whoever must not wait (a shard, which belongs to all)
// hands its placements and fetches to a [Worker].
package slowmem

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/fault"
)

// Worker reads and writes memory that is not direct, on behalf of users of type Q (queue
// pairs), under no lock. Users hand placements and fetches over and go on with what does
// not wait for them; the answers come back by a function of the owner's. A turn of a Worker
// carries out some of what waits: on its own goroutine, or on that of whoever calls Turn.
//
// Memory that never moves stops the users of its worker and nobody else.
type Worker[Q comparable] struct {
	opts   Options
	clock  func() ib.Instant
	answer func([]Answer[Q])

	mu      sync.Mutex
	queue   work[Q]
	at      work[Q]       // what is being carried out, by who takes the turn
	wake    chan struct{} // there is work for the goroutine, or an end
	turns   uint64        // of memory that is touched without a look at the lock
	running bool          // such a turn is under way
	over    chan struct{} // closed when it has ended; nil while nobody waits for that
	closed  bool
	done    chan struct{}

	// Guarded by mu, like the others: what tells whether memory moves.
	watch   *time.Timer
	watched bool
	since   time.Time // of the turn under way
	stuck   uint64    // the latest turn that was reported

	batch   mr.Batch // of who takes the turn, as what follows
	out     []mr.Outcome
	answers []Answer[Q]

	patience patience
}

// Answer is what came of a placement or a fetch.
type Answer[Q comparable] struct {
	User  Q
	ID    uint64 // of the placement, or of the fetch
	Old   uint64 // of a placement: what mr.Placement.Do returned
	Err   error
	Fetch bool
}

// Options adjust a Worker.
type Options struct {
	// OnStuck, if set, is called when memory has not moved for StuckAfter, once each
	// time that it stops. It is called on a goroutine of its own. Nothing is given up:
	// when the memory moves again, so does the worker.
	OnStuck func()
	// StuckAfter is a second if 0.
	StuckAfter time.Duration
	// Effort, if set, tells what the calling thread has spent so far: time of a
	// processor, and how often it has slept. A shard's loop may take the worker's turns
	// then, which saves waking a thread, as long as memory is quick.
	Effort func() (cpu time.Duration, sleeps uint64)
	// OnFault, if set, is called when direct memory that a turn touches is not there: the
	// worker has closed itself, and nothing of the turn is answered. It is called on the
	// goroutine of the turn and must not block. Without it the process ends.
	OnFault func(addr uintptr)
}

// Bounds of a turn: so often QPs get answers, and who waits for memory to be let go.
// Peers wait for ACKs: shorter turns keep them sending, longer ones save calls.
const (
	turnPlaces = 64        // so many, and
	turnBytes  = 256 << 10 // together, or one
	turnGets   = 4
)

// New starts a worker, which its owner closes. clock is the owner's; answer takes the
// answers of a turn, on the goroutine of that turn, and must not keep the list. With manual
// there is no goroutine: turns take place when the owner calls Turn.
func New[Q comparable](o Options, manual bool, clock func() ib.Instant, answer func([]Answer[Q])) *Worker[Q] {
	if o.StuckAfter == 0 {
		o.StuckAfter = time.Second
	}
	w := &Worker[Q]{opts: o, clock: clock, answer: answer,
		wake: make(chan struct{}, 1), done: make(chan struct{}), out: make([]mr.Outcome, turnPlaces)}
	w.watch = time.AfterFunc(time.Hour, w.look)
	w.watch.Stop()
	if manual {
		close(w.done)
	} else {
		go w.run()
	}
	return w
}

// Close ends the worker: no turn begins any more, and what was not begun is never answered.
// Close does not wait for the turn that is under way, whose memory may never move. That turn
// goes on touching memory of any kind, direct memory too: Done tells when it has ended.
func (w *Worker[Q]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.queue = work[Q]{}
	w.watch.Stop()
	w.Ring()
}

// Done is closed when a closed worker touches no memory any more, whoever took its last turn.
func (w *Worker[Q]) Done() <-chan struct{} { return w.done }

// Ring wakes the goroutine.
func (w *Worker[Q]) Ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Place takes placements of q over, with copies of their data.
func (w *Worker[Q]) Place(q Q, list []mr.Placement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for i := range list {
		w.queue.place(q, &list[i])
	}
}

// Fetch takes fetches of q over.
func (w *Worker[Q]) Fetch(q Q, list []qp.Fetch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for _, f := range list {
		w.queue.gets = append(w.queue.gets, f)
		w.queue.getOf = append(w.queue.getOf, q)
	}
}

// run is the goroutine. It does not look for work as a shard does: that takes a processor,
// and what waits is batches.
func (w *Worker[Q]) run() {
	defer close(w.done)
	debug.SetPanicOnFault(w.opts.OnFault != nil)
	for range w.wake {
		for w.Turn() {
		}
		if w.isClosed() {
			<-w.Ended() // the last turn may be taken by a shard's loop
			return
		}
	}
}

func (w *Worker[Q]) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// Turn carries out some of what waits. It returns false if there is nothing, or if
// somebody does so already, who will look again.
func (w *Worker[Q]) Turn() bool {
	if !w.begin() {
		return false
	}
	runtime.LockOSThread() // effort is a thread's
	before := w.effort()
	places, gets, bytes, faulted := w.touchSafely()
	after := w.effort()
	runtime.UnlockOSThread()
	if faulted {
		w.answers = w.answers[:0]
		w.end(0, 0)
		return false
	}
	w.patience.learn(w.clock(), before, after, bytes)
	w.answer(w.answers)
	clear(w.answers)
	w.answers = w.answers[:0]
	w.end(places, gets)
	return true
}

// touchSafely is touch. A fault of direct memory closes the worker.
func (w *Worker[Q]) touchSafely() (places, gets, bytes int, faulted bool) {
	if w.opts.OnFault != nil {
		defer func() {
			if v := recover(); v != nil {
				addr, ok := fault.Addr(v)
				if !ok {
					panic(v)
				}
				faulted = true
				w.Close()
				w.opts.OnFault(addr)
			}
		}()
	}
	places, gets, bytes = w.touch()
	return places, gets, bytes, false
}

// touch reads and writes memory, as much as belongs to a turn: so many placements and
// fetches, so many bytes.
func (w *Worker[Q]) touch() (places, gets, bytes int) {
	a := &w.at
	places = a.some()
	out := w.out[:places]
	w.batch.Do(a.writes[a.placed:][:places], out)
	for i := range out {
		w.answers = a.answer(w.answers, a.placed+i, out[i])
		bytes += len(a.writes[a.placed+i].Data)
	}
	for ; gets < turnGets && a.got+gets < len(a.gets); gets++ {
		f := &a.gets[a.got+gets]
		w.answers = append(w.answers, Answer[Q]{User: a.getOf[a.got+gets], ID: f.ID, Err: f.Do(), Fetch: true})
		bytes += len(f.Buf)
	}
	return places, gets, bytes
}

// begin takes what waits, if the last of it is done, and begins a turn.
func (w *Worker[Q]) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.running {
		return false
	}
	if w.at.finished() {
		w.at, w.queue = w.queue, w.at.emptied()
	}
	if w.at.finished() {
		return false
	}
	w.running, w.since = true, time.Now()
	if !w.watched && w.opts.OnStuck != nil {
		w.watched = true
		w.watch.Reset(w.opts.StuckAfter)
	}
	return true
}

// end ends a turn that has carried out placements, and so many fetches.
func (w *Worker[Q]) end(places, gets int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at.placed += places
	w.at.got += gets
	w.running = false
	w.turns++
	if w.over != nil {
		close(w.over)
		w.over = nil
	}
}

// Ended returns a channel that is closed when no memory is touched that was deregistered
// before: when the turn that is under way has ended, as a later one finds that the key is
// none. That the worker is closed does not end a turn.
func (w *Worker[Q]) Ended() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return NoTurn
	}
	if w.over == nil {
		w.over = make(chan struct{})
	}
	return w.over
}

// NoTurn is closed: there is nothing to wait for.
var NoTurn = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// look looks whether memory has moved for so long.
func (w *Worker[Q]) look() {
	w.mu.Lock()
	left := w.opts.StuckAfter - time.Since(w.since)
	switch {
	case w.closed || !w.running:
		w.watched = false
	case left > 0:
		w.watch.Reset(left)
	default:
		w.watch.Reset(w.opts.StuckAfter)
		if turn := w.turns + 1; w.stuck != turn {
			w.stuck = turn
			w.mu.Unlock()
			w.opts.OnStuck()
			return
		}
	}
	w.mu.Unlock()
}
