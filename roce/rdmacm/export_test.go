package rdmacm

import "github.com/goroce/goroce/ib"

// Idle reports whether the CM holds nothing: no connections, not even in timewait,
// no requests, listeners or ports.
func (c *CM) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.owners) == 0 && len(c.conns) == 0 && len(c.listeners) == 0 && len(c.ports.users) == 0 && c.m.Deadline() == ib.Never
}

// Source and Choose are what Dial chooses addresses by.
var (
	Source = source
	Choose = choose
)
