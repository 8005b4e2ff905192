package server

import (
	"log/slog"
	"sync"
	"time"
)

// visit is what a client process has done, over all of its connections, from the first to the last that it has at a
// time. The log has a line of it at the end.
type visit struct {
	visitor
	began time.Time
	traffic

	mu          sync.Mutex // guards the following fields; failures of queue pairs take it under a shard's lock
	comm        string
	connections int // that are open
	all         int // that were opened
	qps         int
	failed      string // why its first queue pair has failed
}

// visits has a visit for each process with a connection. Processes that the kernel does not show here have number 0:
// those of a user share one visit.
type visits struct {
	mu  sync.Mutex
	all map[visitor]*visit
}

type visitor struct {
	pid int32
	uid uint32
}

// enter counts a connection of a process.
func (v *visits) enter(pid int32, uid uint32) *visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	who := visitor{pid, uid}
	one := v.all[who]
	if one == nil {
		if v.all == nil {
			v.all = map[visitor]*visit{}
		}
		// Here the process has connected, so that /proc still has its name; at the end it may be gone.
		one = &visit{visitor: who, comm: nameOf(pid), began: time.Now()}
		v.all[who] = one
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.connections++
	one.all++
	return one
}

// leave ends a connection. It reports whether it was the last one of its process.
func (v *visits) leave(one *visit) (last bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.connections--; one.connections > 0 {
		return false
	}
	delete(v.all, one.visitor)
	return true
}

// madeQP counts a queue pair. With the first one the process is the program, whatever has started it.
func (one *visit) madeQP() {
	one.mu.Lock()
	one.qps++
	first := one.qps == 1
	one.mu.Unlock()
	if !first {
		return
	}
	comm := nameOf(one.pid) // reads /proc, for which no shard shall wait
	one.mu.Lock()
	defer one.mu.Unlock()
	one.comm = comm
}

// failedQP notes why a queue pair has failed. It is called on the device's goroutines.
func (one *visit) failedQP(why string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.failed == "" {
		one.failed = why
	}
}

// log says what a process that is gone has done. One without a queue pair has only asked.
func (one *visit) log(log *slog.Logger) {
	one.mu.Lock()
	defer one.mu.Unlock()
	attrs := []any{"pid", one.pid, "comm", one.comm, "uid", one.uid,
		"for", time.Since(one.began).Round(time.Millisecond), "connections", one.all, "qps", one.qps,
		"sent_bytes", one.sent.Load(), "rcvd_bytes", one.rcvd.Load()}
	if one.failed != "" {
		attrs = append(attrs, "failed", one.failed)
	}
	if one.qps == 0 {
		log.Debug("process gone", attrs...)
		return
	}
	log.Info("process gone", attrs...)
}
