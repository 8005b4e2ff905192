//go:build linux

package yield

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// nap is how long a thread that polls sleeps between two polls where others compute.
const nap = 100 * time.Microsecond

// Naps puts polling goroutines to sleep. Those that poll several queues one after another sleep at one queue only, not
// at each. The zero value is ready for use, by any number of goroutines.
type Naps struct {
	mu    sync.Mutex
	at    any           // the queue of the latest nap,
	woken time.Duration // and its end, on clock
}

// Nap sleeps, unless there was a nap at another queue lately.
func (n *Naps) Nap(queue any) {
	if !n.due(queue, clock()) {
		return
	}
	// Not time.Sleep, which takes a millisecond where no other goroutine runs. A signal may end it early.
	t := unix.NsecToTimespec(int64(nap))
	_ = unix.Nanosleep(&t, nil)
	n.ended(queue, clock())
}

func (n *Naps) due(queue any, now time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at == queue || n.woken == 0 || now-n.woken >= leastRest
}

func (n *Naps) ended(queue any, now time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at, n.woken = queue, now
}
