package cm

import "github.com/goroce/goroce/wire"

// maxAnswers is how many answers are remembered: at 400 bytes each, 400 KiB.
const maxAnswers = 1024

// answers has the messages that ended the latest requests of peers: REJs of REQs, and SIDR_REPs. A peer repeats its
// request while the answer is on its way, or because the answer was lost; such a copy gets the same answer again. Linux
// forgets the request with the answer (cm_reset_to_idle). There a copy is a new request, and if the peer has meanwhile
// used the QP of a rejected REQ for another REQ, the copy ends that one as stale.
type answers struct {
	ring   []answer
	oldest int // index in ring, when it is full
	index  map[requestKey]int
}

// answer is what was sent in answer to a request.
type answer struct {
	to   requestKey
	path Path
	attr wire.CMAttr
	mad  [wire.MADLen]byte
}

// requestKey identifies a request. A copy has the transaction ID of the original.
type requestKey struct {
	remoteKey
	tid uint64
}

// put remembers an answer, in place of the oldest one if there is no more room.
func (a *answers) put(one answer) {
	at := len(a.ring)
	if at < maxAnswers {
		a.ring = append(a.ring, one)
	} else {
		at = a.oldest
		a.oldest = (at + 1) % maxAnswers
		delete(a.index, a.ring[at].to)
		a.ring[at] = one
	}
	a.index[one.to] = at
}

// answer sends the message that ends c, a request of the peer, and remembers it.
func (m *Manager) answer(c *conn, attr wire.CMAttr, b body) {
	a := answer{to: requestKey{c.remote, c.tid}, path: c.path, attr: attr}
	format(&a.mad, attr, c.tid, b)
	m.post(a.path, attr, &a.mad)
	m.answers.put(a)
}

// answerAgain sends the answer again if a request is a copy of one that was answered, and reports whether it is.
func (m *Manager) answerAgain(in *input, from remoteKey) bool {
	at, ok := m.answers.index[requestKey{from, in.hdr.TID}]
	if !ok {
		return false
	}
	a := &m.answers.ring[at]
	m.stats.Duplicates++
	m.post(a.path, a.attr, &a.mad)
	return true
}
