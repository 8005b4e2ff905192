package rsocket

import (
	"sync"
	"time"
)

// deadline is the deadline of one direction. Conn.mu guards it.
type deadline struct {
	timer   *time.Timer
	expired bool
}

// set replaces the deadline. mu guards it; waiters wait with mu held.
func (d *deadline) set(t time.Time, mu *sync.Mutex, waiters *sync.Cond) {
	d.stop()
	d.expired = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.expired = true
		waiters.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		mu.Lock()
		defer mu.Unlock()
		if d.timer == timer { // not replaced in the meantime
			d.expired = true
			waiters.Broadcast()
		}
	})
	d.timer = timer
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
