package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/slowmem"
)

// Worker touches the slow memory of QPs.
type Worker = slowmem.Worker[*QP]

// answer is what came of a placement or a fetch.
type answer = slowmem.Answer[*QP]

// place gives q's worker what arriving packets have left to it, with copies of their data.
func (s *Shard) place(q *QP, list []mr.Placement) {
	w := q.worker()
	w.Place(q, list)
	s.employ(w)
}

// fetch gives q's worker what must be read before q can send. All packets that q has
// built are copied.
func (s *Shard) fetch(q *QP, list []qp.Fetch) {
	w := q.worker()
	w.Fetch(q, list)
	s.employ(w)
}

// answers are those that wait for the shard's next turn. Workers never take the
// shard's lock: they would stand still while it works, and it while they look for a
// thread.
type answers struct {
	some atomic.Bool
	mu   sync.Mutex
	in   []answer
	out  []answer // the shard's
	at   int      // of out: the next
}

// answer gives answers to the shards that they are for.
func (e *Engine) answer(list []answer) {
	for _, s := range e.shards {
		s.answers.put(s, list)
		if s.answers.some.Load() {
			s.wake()
		}
	}
}

func (l *answers) put(s *Shard, list []answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if list[i].User.shard == s {
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
	l.at = 0
	return l.out
}

// again puts back what take has returned and nobody has looked at.
func (l *answers) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in = slices.Insert(l.in, 0, l.out[l.at:]...)
	l.at = len(l.out)
	l.some.Store(len(l.in) > 0)
}

// takeAnswers tells QPs what their worker has done.
func (s *Shard) takeAnswers() bool {
	list := s.answers.take()
	for i := range list {
		a := &list[i]
		q := a.User
		s.answers.at = i + 1
		if q.core == nil { // closed
			continue
		}
		s.hand = q
		if a.Fetch {
			q.core.Fetched(s.now, a.ID, a.Err)
		} else {
			q.core.Placed(s.now, a.ID, a.Old, a.Err)
		}
		if i+1 == len(list) || list[i+1].User != q {
			s.after(q)
		}
	}
	return len(list) > 0
}
