package perf

import (
	"fmt"
	"runtime"

	"github.com/goroce/goroce/qp/ring"
)

// idle connects many QPs and does nothing with them. It reports the memory of each QP without its rings, or that of the
// daemon, and the processor time.
func idle(j *Job, p *peer) (Result, error) {
	e, err := openEnd(j)
	if err != nil {
		return Result{}, err
	}
	defer e.dev.Close()
	before := heap()
	if err := e.addQPs(j); err != nil {
		return Result{}, err
	}
	if err := e.connect(p); err != nil {
		return Result{}, err
	}
	e.remote.QPNs = nil
	after := heap()
	c := j.qpCap()
	rings := ring.SendSize(c.MaxSendWR, c.MaxSendSGE, c.MaxInline) + ring.RecvSize(c.MaxRecvWR, c.MaxRecvSGE)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	m.sleep()
	runtime.KeepAlive(e)
	p.finish()
	r := m.result()
	if j.daemon != nil {
		r.Daemon, err = j.daemon.resident()
		return r, err
	}
	r.PerQP = float64(after-before)/float64(j.QPs) - float64(rings)
	if after < before {
		err = fmt.Errorf("%d QPs took less than no memory: %d bytes of heap before, %d after", j.QPs, before, after)
	}
	return r, err
}

// heap returns the size of the Go heap and of stacks in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // frees what had a finalizer
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}
