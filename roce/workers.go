package roce

import (
	"sync"
	"time"

	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/internal/slowmem"
)

// Worker reads and writes memory that is not direct (mr.Memory), under no lock: what may
// take for ever must not take place on a shard, which belongs to all.
//
// A worker serves the QPs of some protection domains: those of one tenant, or all of this
// process. Memory that never moves stops these and nobody else.
type Worker struct {
	dev  *Device
	part *engine.Worker
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
	// OnFault, if set, is called when direct memory that a turn touches is not there: the
	// worker has closed itself, and nothing of the turn is answered. It is called on the
	// goroutine of the turn and must not block. Without it the process ends.
	OnFault func(addr uintptr)
}

// NewWorker starts a worker, for AllocPDFor. Its owner closes it.
func (d *Device) NewWorker(o WorkerOptions) *Worker {
	if told := o.OnFault; told != nil {
		o.OnFault = func(addr uintptr) {
			d.mem.Fault(addr)
			told(addr)
		}
	}
	w := &Worker{d, d.engine.NewWorker(slowmem.Options(o))}
	d.workers.add(w)
	return w
}

// Close ends the worker: no turn begins any more, and what was not begun is never answered.
// Close does not wait for the turn that is under way, whose memory may never move. That turn
// goes on touching memory of any kind, direct memory too: Done tells when it has ended.
func (w *Worker) Close() {
	w.dev.workers.remove(w)
	w.part.Close()
}

// Done is closed when a closed worker touches no memory any more, whoever took its last turn.
func (w *Worker) Done() <-chan struct{} { return w.part.Done() }

// workers are those of a device.
type workers struct {
	mu  sync.Mutex
	all []*Worker
	own *Worker // of the PDs of this process; made when first needed
}

func (l *workers) add(w *Worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, w)
}

func (l *workers) remove(w *Worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.all {
		if l.all[i] == w {
			l.all = append(l.all[:i:i], l.all[i+1:]...) // step may have the old list
			return
		}
	}
}

func (l *workers) list() []*Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// step lets the workers of a device in virtual time take their turns.
func (l *workers) step() (busy bool) {
	for _, w := range l.list() {
		busy = w.part.Turn() || busy
	}
	return busy
}

// close ends them all.
func (l *workers) close() {
	for _, w := range l.list() {
		w.Close()
	}
}

// worker returns who touches the memory that p's QPs cannot.
func (p *PD) worker() *engine.Worker {
	if p.own != nil {
		return p.own.part
	}
	l := &p.dev.workers
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		l.own = &Worker{p.dev, p.dev.engine.NewWorker(slowmem.Options{})}
		l.all = append(l.all, l.own)
	}
	return l.own.part
}

// letGo returns a channel that is closed when the domain's QPs and their worker touch
// nothing any more that was deregistered before. The shards have let go of it already.
func (p *PD) letGo() <-chan struct{} {
	p.dev.engine.Quiesce()
	w := p.own
	if w == nil {
		p.dev.workers.mu.Lock()
		w = p.dev.workers.own
		p.dev.workers.mu.Unlock()
	}
	if w == nil {
		return slowmem.NoTurn
	}
	return w.part.Ended()
}
