package cm

import (
	"container/heap"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// timers is a heap of connections by deadline (conn.at). A connection without a deadline is not in it; its at is
// driver.Never and its index -1.
type timers []*conn

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].index, t[j].index = i, j }

// Push and Pop implement heap.Interface.
func (t *timers) Push(x any) { c := x.(*conn); c.index = len(*t); *t = append(*t, c) }
func (t *timers) Pop() any {
	last := len(*t) - 1
	c := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	c.index = -1
	return c
}

func (t *timers) set(c *conn, at ib.Instant) {
	c.at = at
	switch {
	case at == driver.Never && c.index >= 0:
		heap.Remove(t, c.index)
	case at == driver.Never:
	case c.index >= 0:
		heap.Fix(t, c.index)
	default:
		heap.Push(t, c)
	}
}

func (t timers) earliest() ib.Instant {
	if len(t) == 0 {
		return driver.Never
	}
	return t[0].at
}

// Deadline returns when Timeout must be called next, driver.Never if nothing is due.
func (m *Manager) Deadline() ib.Instant { return m.timers.earliest() }

// Timeout handles deadlines that have passed, MaxStep at most. If more have passed, or the queues are full, Deadline is
// in the past then: the caller takes out messages and events before it calls Timeout again.
func (m *Manager) Timeout(now ib.Instant) {
	m.in = input{now: now}
	for range MaxStep {
		if m.timers.earliest() > now || !m.hasRoom() {
			return
		}
		m.dispatch(m.timers[0], onExpired, &m.in)
	}
}

// interval returns how long to wait for an answer to a message that has been sent n times.
func (m *Manager) interval(n int) ib.Instant {
	d := m.opts.Resend
	for ; n > 1 && d < m.opts.ResendMax; n-- {
		d *= 2
	}
	return min(d, m.opts.ResendMax)
}

// await sends the last message of c and waits in state s for an answer.
func (m *Manager) await(c *conn, s state, now ib.Instant) {
	m.transmit(c)
	c.sent++
	m.setState(c, s, min(now+m.interval(c.sent), c.giveUp))
}

// resend is the step onExpired of states that wait for an answer: it sends the last message again, or gives up.
func resend(m *Manager, c *conn, in *input) {
	if in.now >= c.giveUp || c.giveUp == driver.Never && c.sent > m.opts.Retries {
		m.dispatch(c, onUnanswered, in)
		return
	}
	m.stats.Resent++
	m.await(c, stateAfterResend[c.state], in.now)
}

// stateAfterResend is the state of a connection after its message has been sent again: a MRA extends the wait only
// once, so the states entered by a MRA are left.
var stateAfterResend = [numStates]state{
	reqSent: reqSent, mraReqRcvd: reqSent, repSent: repSent, mraRepRcvd: repSent, dreqSent: dreqSent,
	sidrReqSent: sidrReqSent,
}

// timeoutOf returns the duration of a 5-bit code: 4.096 us * 2^code.
func timeoutOf(code uint8) ib.Instant { return 4096 << (code & 31) }

// timeoutCode returns the smallest code whose duration is at least d.
func timeoutCode(d ib.Instant) uint8 {
	code := uint8(0)
	for code < 31 && timeoutOf(code) < d {
		code++
	}
	return code
}
