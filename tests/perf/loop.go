package perf

import (
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// loopNear plays ping-pong with itself, with two QPs of one device that are connected to each other. So only the device
// takes part, and its daemon if there is one.
func loopNear(j *Job, p *peer) (Result, error) {
	e, err := openQPs(j)
	if err != nil {
		return Result{}, err
	}
	defer e.dev.Close()
	if err := e.loop(); err != nil {
		return Result{}, err
	}
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	for n := uint64(1); !m.done; n++ {
		for i := range e.qps {
			if err := e.passOn(i, n); err != nil {
				return Result{}, err
			}
		}
		end := time.Now()
		m.record(began, end)
		began = end
	}
	p.finish()
	return m.result().of(2*pingSize, 2), nil
}

// loop connects the end's two QPs to each other.
func (e *end) loop() error {
	gids, err := e.dev.GIDs(1)
	if err != nil {
		return err
	}
	for i, qp := range e.qps {
		if err := connectQP(qp, gids[0].GID, e.qps[1-i].Num(), ib.MTU1024); err != nil {
			return err
		}
	}
	return nil
}

// passOn WRITEs a number with a QP, and polls until it has arrived in the word of that QP.
func (e *end) passOn(qp int, n uint64) error {
	var number [pingSize]byte
	binary.NativeEndian.PutUint64(number[:], n)
	wr := [1]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled | ib.SendInline, Inline: number[:],
		RemoteAddr: e.mr.Addr() + uint64(qp*pingSize), RKey: e.mr.RKey()}}
	if _, err := e.qps[qp].PostSend(wr[:]); err != nil {
		return err
	}
	var wcs [4]ib.WC
	for word := (*uint64)(unsafe.Pointer(&e.mem[qp*pingSize])); ; {
		// Poll at least once: a number that has arrived at once has a completion, too.
		if _, err := e.poll(wcs[:]); err != nil || atomic.LoadUint64(word) >= n {
			return err
		}
	}
}
