package qp

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/qp/ring"
)

// Abandon takes the QP to ERR without access to its rings or to memory of its application,
// for an owner that has found this memory gone, perhaps in the middle of an input. Nothing
// completes, and no packet is sent. The owner must close the QP then. The state of a QP is
// consistent wherever it accesses memory, so it may be abandoned after any failed access.
func (q *QP) Abandon() {
	q.state = ib.StateErr
	q.cfg.SQ, q.cfg.RQ = ring.NoSend(), ring.NoRecv()
	q.timers.clearAll()
	r := &q.req
	r.stop()
	r.oldest, r.cur = r.tail, r.tail
	r.unfetched, r.toFlush = false, 0
	r.failed.set, r.placing = false, 0
	p := &q.resp
	p.silence()
	p.commits.reset()
	p.recv.held, p.toFlush, p.inside = false, 0, noMessage
	p.phase = refused
}
