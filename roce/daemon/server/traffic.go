package server

import (
	"sync/atomic"

	"github.com/goroce/goroce/roce/internal/device"
)

// traffic are bytes of packets of queue pairs that are closed, from the BTH to the ICRC.
type traffic struct{ sent, rcvd atomic.Uint64 }

// closesQP adds what a queue pair of the session has sent and received, which is about to be closed, to the counts of
// its process and of its user.
func (c *session) closesQP(q *device.QP) {
	t, _, err := q.Traffic()
	if err != nil {
		return
	}
	for _, to := range []*traffic{&c.visit.traffic, &c.user.traffic} {
		to.sent.Add(t.SentBytes)
		to.rcvd.Add(t.RcvdBytes)
	}
}

// Bytes are bytes of packets, from the BTH to the ICRC.
type Bytes struct{ Sent, Rcvd uint64 }

func (b Bytes) add(sent, rcvd uint64) Bytes { return Bytes{b.Sent + sent, b.Rcvd + rcvd} }

// UserBytes returns what the queue pairs of each user with connected clients have sent and received, by user ID. It
// counts from the first client on that a user has at a time, and never goes down meanwhile: a queue pair that is closed
// while it looks, and is counted neither as closed nor as open, is made up for by what was returned before.
func (s *Server) UserBytes() map[uint32]Bytes {
	sums := map[uint32]Bytes{}
	a := &s.accounts
	a.mu.Lock()
	for uid, u := range a.users {
		sums[uid] = Bytes{u.traffic.sent.Load(), u.traffic.rcvd.Load()}
	}
	a.mu.Unlock()
	look := s.look()
	objectsOf(s, func(_ string, who Owner, q *device.QP) {
		look.next()
		if t, _, err := q.Traffic(); err == nil { // else it has just been closed
			sums[who.UID] = sums[who.UID].add(t.SentBytes, t.RcvdBytes)
		}
	})
	look.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, now := range sums {
		u := a.users[uid]
		if u == nil {
			delete(sums, uid) // the last client has left
			continue
		}
		u.shown = Bytes{max(u.shown.Sent, now.Sent), max(u.shown.Rcvd, now.Rcvd)}
		sums[uid] = u.shown
	}
	return sums
}
