package rdmacm

import "github.com/goroce/goroce/roce/cm"

// Idle reports whether the CM has no objects, and the port's connection manager no connection, not even in timewait.
func (c *CM) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.owners) == 0 && len(c.conns) == 0 && len(c.listeners) == 0 && c.Stats().Open == 0
}

// Choose is choose, for tests.
var Choose = choose

// Stats returns the counters of the port's connection manager, which all users of the device share. They are zero if
// the device does not report them.
func (c *CM) Stats() cm.Stats {
	if d, ok := c.dev.(interface{ CMStats() cm.Stats }); ok {
		return d.CMStats()
	}
	return cm.Stats{}
}
