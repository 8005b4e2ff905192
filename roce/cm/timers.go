package cm

import (
	"container/heap"

	"github.com/goroce/goroce/ib"
)

// timers is a heap of connections by deadline. One without a deadline is not in
// it: its at is ib.Never and its index -1.
type timers []*conn

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].index, t[j].index = i, j }

// Push and Pop are for package heap.
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
	case at == ib.Never && c.index >= 0:
		heap.Remove(t, c.index)
	case at == ib.Never:
	case c.index >= 0:
		heap.Fix(t, c.index)
	default:
		heap.Push(t, c)
	}
}

func (t timers) earliest() ib.Instant {
	if len(t) == 0 {
		return ib.Never
	}
	return t[0].at
}

// Deadline is when Timeout wants to be called.
func (m *Manager) Deadline() ib.Instant { return m.timers.earliest() }

// Timeout does what is due. If very much is, it leaves some of it for a second
// call, after messages and events were taken out: Deadline is in the past then.
func (m *Manager) Timeout(now ib.Instant) {
	m.in = input{now: now}
	for m.timers.earliest() <= now && m.hasRoom() {
		m.do(m.timers[0], onExpired, &m.in)
	}
}

// interval is how long to wait for an answer to a message that was sent n times.
func (m *Manager) interval(n int) ib.Instant {
	d := m.opts.Resend
	for ; n > 1 && d < m.opts.ResendMax; n-- {
		d *= 2
	}
	return min(d, m.opts.ResendMax)
}

// await sends the last message and waits in state s for an answer.
func (m *Manager) await(c *conn, s state, now ib.Instant) {
	m.transmit(c)
	c.sent++
	m.enter(c, s, min(now+m.interval(c.sent), c.giveUp))
}

// tryAgain is onExpired where an answer is missing.
func tryAgain(m *Manager, c *conn, in *input) {
	if in.now >= c.giveUp || c.giveUp == ib.Never && c.sent > m.opts.Retries {
		m.do(c, onUnanswered, in)
		return
	}
	m.stats.Resent++
	m.await(c, waitsIn[c.state], in.now)
}

// waitsIn is where a state that waits for an answer goes when its message has
// been sent again: a MRA is good for one long wait.
var waitsIn = [numStates]state{
	reqSent: reqSent, mraReqRcvd: reqSent, repSent: repSent, mraRepRcvd: repSent, dreqSent: dreqSent, sidrReqSent: sidrReqSent,
}

// timeoutOf returns the time that a 5-bit code stands for: 4.096 us * 2^code.
func timeoutOf(code uint8) ib.Instant { return 4096 << (code & 31) }

// timeoutCode returns the least code that stands for d or more.
func timeoutCode(d ib.Instant) uint8 {
	code := uint8(0)
	for code < 31 && timeoutOf(code) < d {
		code++
	}
	return code
}
