// Package slowmem reads and writes memory that is not direct (mr.Memory): memory of other
// processes, where an access may block for ever. A shard must not wait, as many QPs share it, so
// it hands its placements and fetches to a [Worker].
//
// What is received goes into such memory in one of two ways:
//
//	hold.go   by a turn of the worker that the shard's loop takes itself, soon: from the received
//	          frames, which the shard leaves alone until then (Worker.Hold)
//	work.go   otherwise: copied, packets for consecutive addresses back to back (Worker.Place),
//	          and written by a turn on any goroutine
//
// A turn writes what it can by one call (mr.Batch). If that fails it repeats each packet by itself,
// so that each gets an answer of its own.
package slowmem

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/fault"
)

// Worker reads and writes memory that is not direct, on behalf of users of type Q (queue
// pairs), under no lock. Users hand placements and fetches over and continue with other work;
// the worker passes the answers to a function of its owner. A turn of a Worker carries out
// some of the waiting work, on its own goroutine or on that of a caller of Turn.
//
// An access that never returns blocks the users of its worker and no others.
type Worker[Q comparable] struct {
	opts   Options
	clock  func() ib.Instant
	answer func([]Answer[Q])

	mu      sync.Mutex
	queue   work[Q]
	at      work[Q]       // the work being carried out; used by the goroutine that takes the turn
	wake    chan struct{} // has an item if there is work for the goroutine, or the worker is closed
	turns   uint64        // turns that have ended
	running bool          // a turn is under way and touches memory, without mu
	over    chan struct{} // closed when that turn has ended; nil while nobody waits for it
	gone    []Q           // users whose placements are removed from at when the turn has ended (Forget)
	closed  bool
	manual  bool // there is no goroutine
	done    chan struct{}

	// Guarded by mu too: detection of accesses that do not return.
	watch     *time.Timer
	watched   bool
	seen      waiting // what look has found last
	seenTimes int     // how often, in succession

	thread atomic.Int64 // of the turn that is under way, by Options.Thread

	batch    mr.Batch // this and the following are used by the goroutine that takes the turn
	out      []mr.Outcome
	messages [turnGets]mr.Message
	errs     [turnGets]error
	answers  []Answer[Q]

	backoff backoff
}

// Answer is the result of a placement or a fetch.
type Answer[Q comparable] struct {
	User  Q
	ID    uint64 // of the placement or fetch
	Old   uint64 // placements only: the value that mr.Placement.Do returned
	Err   error
	Fetch bool
}

// Options adjust a Worker.
type Options struct {
	// OnStuck, if set, is called once for each turn whose thread has waited for one thing for longer than
	// StuckAfter, on a goroutine of its own, with that thread. The worker does not give up: it continues when the
	// access returns.
	OnStuck func(thread int)
	// StuckAfter is ten seconds if 0.
	StuckAfter time.Duration
	// Thread, if set, returns the number of the calling thread.
	Thread func() int
	// Waits, set with Thread, tells whether a thread waits, for something other than a processor, and how many
	// times it has begun to. A turn whose thread runs, or waits for one page after the other, is slow, and not stuck.
	// Without it a turn is stuck if it takes longer than StuckAfter.
	Waits func(thread int) (times uint64, waits bool)
	// Stalls, if set, returns how many times so far the calling thread has slept or had a page
	// fault. With it a shard's loop may take the worker's turns as long as memory is fast, which
	// saves waking a thread.
	Stalls func() uint64
	// OnFault, if set, is called when a turn touches direct memory that is not mapped. The
	// worker has closed itself then, and sends no answers of the turn. It is called on the
	// goroutine of the turn and must not block. If it is nil the process ends.
	OnFault func(addr uintptr)
}

// Bounds of a turn. At the end of a turn QPs get answers, and callers that wait on Ended
// continue. Shorter turns send ACKs to peers earlier, longer ones save system calls.
const (
	turnPlaces = 64        // placements, and
	turnBytes  = 256 << 10 // their bytes together, unless a single one has more
	turnGets   = 4         // fetches
)

// New starts a worker, which its owner closes. clock returns the owner's time; answer receives
// the answers of a turn, on the goroutine of that turn, and must not keep the list. If manual is
// set there is no goroutine: turns take place when the owner calls Turn.
func New[Q comparable](o Options, manual bool, clock func() ib.Instant, answer func([]Answer[Q])) *Worker[Q] {
	if o.StuckAfter == 0 {
		o.StuckAfter = 10 * time.Second
	}
	w := &Worker[Q]{opts: o, clock: clock, answer: answer, manual: manual,
		wake: make(chan struct{}, 1), done: make(chan struct{}), out: make([]mr.Outcome, turnPlaces)}
	w.watch = time.AfterFunc(time.Hour, w.look)
	w.watch.Stop()
	if !manual {
		go w.run()
	}
	return w
}

// Close ends the worker: no turn begins any more, and waiting work is never answered. Close does
// not wait for a turn that is under way, as its accesses may never return. Such a turn still
// touches memory of any kind, direct memory too; Done is closed when it has ended.
func (w *Worker[Q]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.queue.end()
	w.queue = work[Q]{}
	if !w.running {
		w.at.end()
	}
	w.watch.Stop()
	w.Ring()
	w.finish()
}

// finish closes done, where no goroutine does so, if the worker is closed and no turn is under
// way. The caller holds mu.
func (w *Worker[Q]) finish() {
	if !w.manual || !w.closed || w.running {
		return
	}
	select {
	case <-w.done:
	default:
		close(w.done)
	}
}

// Done returns a channel that is closed when a closed worker touches no memory any more, on
// whichever goroutine its last turn runs.
func (w *Worker[Q]) Done() <-chan struct{} { return w.done }

// Ring wakes the worker's goroutine.
func (w *Worker[Q]) Ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Place queues placements of q, with copies of their data.
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

// Fetch queues fetches of q.
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

// run is the worker's goroutine. It does not spin as a shard does: that would occupy a processor,
// and its work comes in batches.
func (w *Worker[Q]) run() {
	defer close(w.done)
	debug.SetPanicOnFault(w.opts.OnFault != nil)
	for range w.wake {
		for w.Turn(nil) {
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

// Turn carries out some of the waiting work. It returns false if there is none, if another
// goroutine takes a turn already, which looks for work again after its turn, or if the next
// placements are held for somebody other than by.
func (w *Worker[Q]) Turn(by any) bool {
	if !w.begin(by) {
		return false
	}
	runtime.LockOSThread() // stalls are counted per thread
	if w.opts.Thread != nil {
		w.thread.Store(int64(w.opts.Thread()))
	}
	before, began := w.stalls(), w.clock()
	places, gets, bytes, faulted := w.touchSafely()
	if now := w.clock(); time.Duration(now-began) > quick(bytes) && w.stalls() != before {
		w.backoff.extend(now)
	}
	runtime.UnlockOSThread()
	if faulted {
		w.answers = w.answers[:0]
		w.end(0, 0)
		return false
	}
	w.answer(w.answers)
	clear(w.answers)
	w.answers = w.answers[:0]
	w.end(places, gets)
	return true
}

// touchSafely calls touch, and closes the worker if that faults in direct memory.
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

// touch carries out the placements and fetches of one turn. It returns their numbers and the
// bytes that were moved.
func (w *Worker[Q]) touch() (places, gets, bytes int) {
	a := &w.at
	places = a.some()
	out := w.out[:places]
	w.batch.Do(a.writes[a.placed:][:places], out)
	for i := range out {
		w.answers = a.answer(w.answers, a.placed+i, out[i])
		bytes += a.writes[a.placed+i].Len()
	}
	fetches := a.gets[a.got:][:min(turnGets, len(a.gets)-a.got)]
	for i := range fetches {
		w.messages[i] = fetches[i].Message
	}
	gets = len(fetches)
	w.batch.Gather(w.messages[:gets], w.errs[:gets])
	for i, f := range fetches {
		w.answers = append(w.answers, Answer[Q]{User: a.getOf[a.got+i], ID: f.ID, Err: w.errs[i], Fetch: true})
		bytes += len(f.Buf)
	}
	clear(w.messages[:gets])
	return places, gets, bytes
}

// begin begins a turn of by. If there is no work in at, it moves the queue there first. It returns
// false if there is no work for by, another turn is under way, or the worker is closed.
func (w *Worker[Q]) begin(by any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.running {
		return false
	}
	if w.at.finished() {
		w.at, w.queue = w.queue, w.at.emptied()
	}
	if w.at.finished() || w.at.holder != nil && w.at.holder != by {
		return false
	}
	w.running = true
	if !w.watched && w.opts.OnStuck != nil {
		w.watched = true
		w.watch.Reset(w.opts.StuckAfter / looks)
	}
	return true
}

// end ends a turn that has carried out the given numbers of placements and fetches.
func (w *Worker[Q]) end(places, gets int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at.placed += places
	w.at.got += gets
	w.running = false
	for _, q := range w.gone {
		w.at.forget(q)
	}
	w.gone = nil
	w.at.settle()
	if w.closed {
		w.at.end()
	}
	w.turns++
	if w.over != nil {
		close(w.over)
		w.over = nil
	}
	w.finish()
}

// Ended returns a channel that is closed when the worker touches no memory any more that was
// deregistered before the call: when the current turn has ended, as later turns find the key
// invalid. Closing the worker does not end a turn.
func (w *Worker[Q]) Ended() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended()
}

// Forget drops the waiting placements of q, without answers. The current turn may still carry out some of
// them: the channel that Forget returns is closed when that turn has ended.
func (w *Worker[Q]) Forget(q Q) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.forget(q)
	if w.running {
		w.gone = append(w.gone, q)
	} else {
		w.at.forget(q)
		w.at.settle()
	}
	w.queue.settle()
	return w.ended()
}

// Drained returns a channel that is closed when the placements that were queued before the call are carried out,
// or when nobody will carry them out, as the worker is closed.
func (w *Worker[Q]) Drained() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return w.ended()
	case !w.queue.finished():
		return w.queue.ended()
	case !w.at.finished():
		return w.at.ended()
	}
	return NoTurn
}

// ended is Ended with mu held.
func (w *Worker[Q]) ended() <-chan struct{} {
	if !w.running {
		return NoTurn
	}
	if w.over == nil {
		w.over = make(chan struct{})
	}
	return w.over
}

// NoTurn is a closed channel, which Ended returns if there is no turn to wait for.
var NoTurn = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// looks is how many times in StuckAfter the watch looks at a turn. A turn is stuck after more looks than that, not
// after a time: if the whole process stands still, in a virtual machine that is paused for example, that is one look.
const looks = 4

// waiting is one wait of one turn's thread.
type waiting struct {
	turn  uint64 // its number
	times uint64 // from Options.Waits
}

// look counts how often it has found the current turn in the same wait, and calls OnStuck once.
func (w *Worker[Q]) look() {
	thread, times, waits := int(w.thread.Load()), uint64(0), true
	if w.opts.Waits != nil {
		times, waits = w.opts.Waits(thread)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.running {
		w.watched = false
		return
	}
	found := waiting{turn: w.turns + 1, times: times}
	switch {
	case !waits:
		w.seenTimes = 0
	case found != w.seen:
		w.seen, w.seenTimes = found, 1
	default:
		w.seenTimes++
	}
	if w.seenTimes == looks+1 {
		go w.opts.OnStuck(thread)
	}
	w.watch.Reset(w.opts.StuckAfter / looks)
}
