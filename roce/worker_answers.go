package roce

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
)

// This file is what lies between QPs and workers: which worker is whose, and the way
// back of its answers.

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
		busy = w.turn() || busy
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
func (p *PD) worker() *Worker {
	if p.own != nil {
		return p.own
	}
	l := &p.dev.workers
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		l.own = p.dev.newWorker(WorkerOptions{})
		l.all = append(l.all, l.own)
	}
	return l.own
}

// letGo returns when nothing that was deregistered before is touched any more by the
// domain's QPs and their worker.
func (p *PD) letGo() {
	p.dev.quiesce()
	w := p.own
	if w == nil {
		p.dev.workers.mu.Lock()
		w = p.dev.workers.own
		p.dev.workers.mu.Unlock()
	}
	if w != nil {
		w.wait()
	}
}

// handPlacements gives q's worker what arriving packets have left to it.
func (s *shard) handPlacements(q *QP) {
	if late := q.core.TakePlacements(); len(late) > 0 {
		w := q.pd.worker()
		w.place(q, late)
		s.send(w)
	}
}

// handFetches gives q's worker what must be read before q can send. All packets that q
// has built are copied.
func (s *shard) handFetches(q *QP) {
	if fetches := q.core.TakeFetches(); len(fetches) > 0 {
		w := q.pd.worker()
		w.fetch(q, fetches)
		s.send(w)
	}
}

// answer is what came of a placement or a fetch.
type answer struct {
	q     *QP
	id    uint64
	old   uint64
	err   error
	fetch bool
}

// answers are those that wait for the shard's next turn. Workers never take the
// shard's lock: they would stand still while it works, and it while they look for a
// thread.
type answers struct {
	some atomic.Bool
	mu   sync.Mutex
	in   []answer
	out  []answer // the shard's
}

// answer gives answers to the shards that they are for.
func (d *Device) answer(list []answer) {
	for _, s := range d.shards {
		s.answers.put(s, list)
		if s.answers.some.Load() {
			s.kick()
		}
	}
}

func (l *answers) put(s *shard, list []answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if list[i].q.shard == s {
			l.in = append(l.in, list[i])
		}
	}
	if len(l.in) > 0 {
		l.some.Store(true)
	}
}

// take returns what waits. It stays valid until the next take.
func (l *answers) take() []answer {
	if !l.some.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.out)
	l.in, l.out = l.out[:0], l.in
	l.some.Store(false)
	return l.out
}

// takeAnswers tells QPs what their worker has done.
func (s *shard) takeAnswers(now ib.Instant) bool {
	list := s.answers.take()
	for i := range list {
		a := &list[i]
		q := a.q
		if q.core == nil { // closed
			continue
		}
		if a.fetch {
			q.core.Fetched(now, a.id, a.err)
		} else {
			q.core.Placed(now, a.id, a.old, a.err)
		}
		if i+1 == len(list) || list[i+1].q != q {
			s.after(q)
		}
	}
	return len(list) > 0
}
