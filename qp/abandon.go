package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
)

// Abandon takes the QP to ERR without a look at its rings or at memory of its application,
// which has turned out not to be there, perhaps in the middle of an input: nothing completes,
// and the peer hears nothing. What is left for the owner is to close the QP. A QP touches
// memory only where its state is whole, so it may be abandoned wherever that has failed.
func (q *QP) Abandon() {
	q.state = ib.Err
	q.cfg.SQ, q.cfg.RQ = ring.NoSend(), ring.NoRecv()
	q.timers.clearAll()
	r := &q.req
	r.stop()
	r.oldest, r.cur = r.tail, r.tail
	r.failed, r.placing = false, 0
	p := &q.resp
	p.silence()
	p.commits.reset()
	p.recv.held, p.inside = false, noMessage
	p.refused, p.dying = true, false
}
