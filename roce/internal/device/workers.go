package device

import (
	"sync"

	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/roce/internal/engine"
	"github.com/goroce/goroce/roce/internal/slowmem"
)

// Worker reads and writes memory that is not direct (mr.Memory), under no lock. Such an access
// may block for ever, so a shard, which many QPs share, must not do it.
//
// A worker serves the QPs of some protection domains: those of one tenant, or all of this
// process. An access that never returns blocks these QPs and no others.
type Worker struct {
	dev  *Device
	part *engine.Worker
}

// WorkerOptions adjust a Worker.
type WorkerOptions = slowmem.Options

// NewWorker starts a worker, for AllocPDFor. Its owner closes it.
func (d *Device) NewWorker(o WorkerOptions) *Worker {
	if told := o.OnFault; told != nil {
		o.OnFault = func(addr uintptr) {
			d.mem.Fault(addr)
			told(addr)
		}
	}
	w := &Worker{d, d.engine.NewWorker(o)}
	d.workers.add(w)
	return w
}

// Close ends the worker: no turn begins any more, and waiting work is never answered. Close does
// not wait for a turn that is under way, as its accesses may never return. Such a turn still
// touches memory of any kind, direct memory too; Done is closed when it has ended.
func (w *Worker) Close() {
	w.dev.workers.remove(w)
	w.part.Close()
}

// Done returns a channel that is closed when a closed worker touches no memory any more, on
// whichever goroutine its last turn runs.
func (w *Worker) Done() <-chan struct{} { return w.part.Done() }

// Ended returns a channel that is closed when the turn that is under way, if there is one, has ended.
func (w *Worker) Ended() <-chan struct{} { return w.part.Ended() }

// workers holds the workers of a device.
type workers struct {
	mu  sync.Mutex
	all []*Worker
	own *Worker // for the PDs of this process; made when first needed
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
			l.all = append(l.all[:i:i], l.all[i+1:]...) // a copy, as step may iterate over the old list
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
		busy = w.part.Turn(nil) || busy
	}
	return busy
}

// close closes all workers. It waits for none: an access of theirs may never return.
func (l *workers) close() {
	for _, w := range l.list() {
		w.Close()
	}
}

// workerOf returns the worker for the slow memory of a domain: the one that letGo waits for. An XRC
// target meets memory of other domains than its own.
func workerOf(core *mr.PD) *engine.Worker {
	p := core.Owner.(*PD)
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

// worker returns the worker for the slow memory of the domain, nil if none was needed yet.
func (p *PD) worker() *Worker {
	if p.own != nil {
		return p.own
	}
	p.dev.workers.mu.Lock()
	defer p.dev.workers.mu.Unlock()
	return p.dev.workers.own
}

// letGo waits until the shards touch no memory any more that was deregistered before the call. It
// returns a channel that is closed when the domain's worker does not touch it any more either.
func (p *PD) letGo() <-chan struct{} {
	p.dev.engine.Quiesce()
	if w := p.worker(); w != nil {
		return w.part.Ended()
	}
	return slowmem.NoTurn
}
