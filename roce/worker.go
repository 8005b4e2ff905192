package roce

import (
	"runtime"
	"sync"
	"time"

	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
)

// Worker reads and writes memory that is not direct (mr.Memory), under no lock: what may
// take for ever must not take place on a shard, which belongs to all. QPs hand their
// placements and fetches over and go on with what does not wait for them; the answers come
// back by way of the shard (worker_answers.go). Its turns take place on a goroutine of its
// own, or as errands of the shards' loops (errand.go).
//
// A worker serves the QPs of some protection domains: those of one tenant, or all of
// this process. Memory that never moves stops these and nobody else.
type Worker struct {
	dev  *Device
	opts WorkerOptions

	mu      sync.Mutex
	queue   work
	at      work          // what is being carried out, by who takes the turn
	wake    chan struct{} // there is work for the goroutine, or an end
	turns   uint64        // of memory that is touched without a look at the lock
	running bool          // such a turn is under way
	ended   *sync.Cond    // of a turn
	closed  bool
	done    chan struct{}

	// Guarded by mu, like the others: what tells whether memory moves.
	watch   *time.Timer
	watched bool
	since   time.Time // of the turn under way
	stuck   uint64    // the latest turn that was reported

	batch   mr.Batch // of who takes the turn, as what follows
	out     []mr.Outcome
	answers []answer

	patience patience
}

// WorkerOptions adjust a Worker.
type WorkerOptions struct {
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
}

// Bounds of a turn: so often QPs get answers, and who waits for memory to be let go.
// Peers wait for ACKs: shorter turns keep them sending, longer ones save calls.
const (
	turnPlaces = 64        // so many, and
	turnBytes  = 256 << 10 // together, or one
	turnGets   = 4
)

// maxLate bounds the placements of a QP that wait for their worker. It is as much as
// the requester of a peer has in flight at most: more would be dropped.
const maxLate = 1024

// NewWorker starts a worker, for AllocPDFor. Its owner closes it.
func (d *Device) NewWorker(o WorkerOptions) *Worker {
	w := d.newWorker(o)
	d.workers.add(w)
	return w
}

func (d *Device) newWorker(o WorkerOptions) *Worker {
	if o.StuckAfter == 0 {
		o.StuckAfter = time.Second
	}
	w := &Worker{dev: d, opts: o, wake: make(chan struct{}, 1), done: make(chan struct{}), out: make([]mr.Outcome, turnPlaces)}
	w.ended = sync.NewCond(&w.mu)
	w.watch = time.AfterFunc(time.Hour, w.look)
	w.watch.Stop()
	if d.opts.Manual {
		close(w.done)
	} else {
		go w.run()
	}
	return w
}

// Close ends the worker. What it has not begun is not done, and never answered. Close
// does not wait for memory that does not move: Done tells when it is touched no more.
func (w *Worker) Close() {
	w.dev.workers.remove(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.queue = work{}
	w.watch.Stop()
	w.ended.Broadcast()
	w.ring()
}

// Done is closed when a closed worker touches no memory any more.
func (w *Worker) Done() <-chan struct{} { return w.done }

// ring wakes the goroutine.
func (w *Worker) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// place takes placements of q over, with copies of their data.
func (w *Worker) place(q *QP, list []mr.Placement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for i := range list {
		w.queue.place(q, &list[i])
	}
}

// fetch takes fetches of q over.
func (w *Worker) fetch(q *QP, list []qp.Fetch) {
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
func (w *Worker) run() {
	defer close(w.done)
	for range w.wake {
		for w.turn() {
		}
		if w.over() {
			return
		}
	}
}

// over reports whether the worker was closed. The memory is touched no more then.
func (w *Worker) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.closed && w.running {
		w.ended.Wait()
	}
	return w.closed
}

// turn carries out some of what waits. It returns false if there is nothing, or if
// somebody does so already, who will look again.
func (w *Worker) turn() bool {
	if !w.begin() {
		return false
	}
	runtime.LockOSThread() // effort is a thread's
	before := w.effort()
	places, gets, bytes := w.touch()
	after := w.effort()
	runtime.UnlockOSThread()
	w.patience.learn(w.dev.now(), before, after, bytes)
	w.dev.answer(w.answers)
	clear(w.answers)
	w.answers = w.answers[:0]
	w.end(places, gets)
	return true
}

// touch reads and writes memory, as much as belongs to a turn: so many placements and
// fetches, so many bytes.
func (w *Worker) touch() (places, gets, bytes int) {
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
		w.answers = append(w.answers, answer{q: a.getOf[a.got+gets], id: f.ID, err: f.Do(), fetch: true})
		bytes += len(f.Buf)
	}
	return places, gets, bytes
}

// begin takes what waits, if the last of it is done, and begins a turn.
func (w *Worker) begin() bool {
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
func (w *Worker) end(places, gets int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at.placed += places
	w.at.got += gets
	w.running = false
	w.turns++
	w.ended.Broadcast()
}

// wait returns when no memory is touched that was deregistered before: the turn that
// is under way ends, and a later one finds that the key is none. It returns early when
// the worker is closed.
func (w *Worker) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for turn := w.turns; w.running && w.turns == turn && !w.closed; {
		w.ended.Wait()
	}
}

// look looks whether memory has moved for so long.
func (w *Worker) look() {
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
