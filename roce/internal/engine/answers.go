package engine

import (
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/slowmem"
)

// Worker touches the slow memory of QPs.
type Worker = slowmem.Worker[*QP]

// answer is the result of a placement or a fetch.
type answer = slowmem.Answer[*QP]

// place gives placements of q's received packets to the worker of their domain. If the loop takes the
// worker's turn itself, soon, the data stays in the received frames (held.go), otherwise the worker copies
// it. Placements of an XRC target may be for several domains: that of the SRQ which each message names.
func (s *Shard) place(q *QP, list []mr.Placement) {
	for len(list) > 0 {
		pd, n := list[0].R.PD(), 1
		for n < len(list) && list[n].R.PD() == pd {
			n++
		}
		w := q.worker(pd)
		q.placedBy(w)
		inline := s.inlines(w)
		if !inline || !s.keeps || !w.Hold(s, q, list[:n]) {
			w.Place(q, list[:n])
		}
		s.employ(w, inline)
		list = list[n:]
	}
}

// fetch gives fetches, which q needs before it can send, to the worker of their domain. Payloads of
// the packets that q has built before are already copied into runs.
func (s *Shard) fetch(q *QP, list []qp.Fetch) {
	for i := range list {
		w := q.worker(list[i].SGL[0].R.PD())
		w.Fetch(q, list[i:i+1])
		s.employ(w, s.inlines(w))
	}
}

// answers holds workers' answers until the shard's next turn. Workers never take the shard's
// lock: they would wait while the shard takes a turn, and the shard would wait for a worker that
// holds the lock but has no thread to run on.
type answers struct {
	some atomic.Bool
	mu   sync.Mutex
	in   []answer
	out  []answer // what take returned last; used by the shard only
	at   int      // index in out of the next answer to process
}

// answer puts answers into the queues of the shards that their QPs are on.
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

// take returns waiting answers. The list stays valid until the next take.
func (l *answers) take() []answer {
	if l.unfinished() {
		return l.out[l.at:]
	}
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

// unfinished reports whether takeAnswers has left some of what take returned last.
func (l *answers) unfinished() bool { return l.at < len(l.out) }

// takeAnswers passes answers of workers to their QPs.
func (s *Shard) takeAnswers() bool {
	list := s.answers.take()
	list = list[:min(len(list), TurnAnswers)]
	for i := range list {
		a := &list[i]
		q := a.User
		s.answers.at++
		if q.core == nil { // closed
			continue
		}
		s.current = q
		if a.Fetch {
			q.core.Fetched(s.now, a.ID, a.Err)
		} else {
			q.core.Placed(s.now, a.ID, a.Old, a.Err)
		}
		if i+1 == len(list) || list[i+1].User != q {
			s.applyEffects(q)
		}
	}
	return len(list) > 0
}
