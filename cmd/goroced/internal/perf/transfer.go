package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
)

// transfer is a bandwidth test at one size: this end sends, receives, or both.
type transfer struct {
	*endpoint
	streams  []*stream // requests of this end
	began    time.Time
	sent     tally
	received tally
	arrived  int64 // received messages, measured or not
	expected int64 // number of messages to receive; 0 if not known
	reaped   int64 // completed requests of all queue pairs
}

// transfer runs a bandwidth test at one size. It returns what this end has measured: what it has sent, or if it does
// not send, what it has received. If ctx ends, it returns what was measured so far, and the error.
func (e *endpoint) transfer(ctx context.Context, size int) (Row, error) {
	x := e.newTransfer(size)
	e.schedule.set(e.o.Duration)
	defer e.schedule.cancel()
	err := x.run(ctx)
	if err != nil {
		err = fmt.Errorf("%w; of %d-byte messages %d were sent and %d received", err, size, x.reaped, x.arrived)
	}
	t := &x.sent
	if !e.o.sends() {
		t = &x.received
	}
	if err != nil && (ctx.Err() == nil || !t.running()) {
		return Row{}, err
	}
	if t.running() && t.stop.Equal(t.start) {
		t.start = x.began // all messages were polled at once
	}
	row := t.row(e.o, size)
	if x.expected > 0 && err == nil {
		row.Lost = x.expected - x.arrived
	}
	return row, err
}

func (e *endpoint) newTransfer(size int) *transfer {
	e.size = size
	x := &transfer{endpoint: e}
	limit := int64(e.o.Iters)
	if e.o.Duration > 0 {
		limit = 0
	}
	if e.o.sends() {
		for i := range e.qps {
			x.streams = append(x.streams, newStream(e, i, size, e.o.CQMod, limit))
		}
	}
	if e.o.receives() {
		x.expected = limit * int64(e.o.NumQP)
	}
	return x
}

func (x *transfer) run(ctx context.Context) error {
	x.began = time.Now()
	if x.o.sends() {
		x.schedule.begin(x.o.Duration)
		if x.o.Duration == 0 {
			x.sent.begin(x.began, x.stretch())
		}
	}
	for {
		over, err := x.over()
		if over || err != nil {
			return err
		}
		if err := x.post(); err != nil {
			return err
		}
		n, err := x.poll(ctx)
		if err != nil {
			return err
		}
		if err := x.account(x.wcs[:n]); err != nil {
			return err
		}
	}
}

// stretch returns the number of messages over which the peak is measured.
func (x *transfer) stretch() int64 { return int64(x.o.TxDepth * x.o.NumQP) }

// over reports whether everything is done.
func (x *transfer) over() (bool, error) {
	if x.o.sends() && x.o.Duration > 0 {
		return x.schedule.phase() == ended, nil
	}
	if x.reaped < int64(len(x.streams)*x.o.Iters) {
		return false, nil
	}
	if !x.o.receives() || x.expected > 0 && x.arrived >= x.expected {
		return true, nil
	}
	return x.abandoned()
}

// abandoned reports whether the peer will send nothing more: it has said so, or its time is long over.
func (x *transfer) abandoned() (bool, error) {
	quiet := x.patience.quiet
	switch {
	case quiet < grace:
		return false, nil
	case x.patience.peer == ahead && (x.o.lossy() || x.expected == 0):
		return true, nil
	case x.patience.peer == ahead && !x.o.sends():
		return false, fmt.Errorf("%w: it has done its part; both ends need the same number of messages (-n, -q, -D)",
			ErrPeerLeft)
	}
	return x.o.sends() && x.o.lossy() && quiet > lossGrace, nil
}

// lossGrace is how long an end of a bidirectional test waits for messages that may have been lost.
const lossGrace = time.Second

// post posts as many requests as there is room for.
func (x *transfer) post() error {
	if x.o.Duration > 0 && x.schedule.phase() == ended {
		return nil
	}
	for _, s := range x.streams {
		if n := s.room(x.o.TxDepth); n > 0 {
			if err := s.post(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// account handles completions.
func (x *transfer) account(wcs []ib.WC) error {
	if len(wcs) == 0 {
		return nil
	}
	var sent, received int64
	for i := range wcs {
		wc := &wcs[i]
		if err := wc.Err(); err != nil {
			return x.explain(err)
		}
		qp := workIndex(wc.ID)
		switch workKind(wc.ID) {
		case sendID:
			n := workCount(wc.ID)
			x.streams[qp].reaped += n
			sent += n
		case recvID:
			if err := x.checkLength(wc); err != nil {
				return err
			}
			received++
			if x.stock[qp]--; x.stock[qp] <= max(x.o.RxDepth-recvBatch, x.o.RxDepth/2) {
				if err := x.restockQP(qp); err != nil {
					return err
				}
			}
		}
	}
	now := time.Now()
	x.reaped += sent
	x.arrived += received
	x.done.Add(sent + received)
	x.measure(&x.sent, sent, now)
	x.measure(&x.received, received, now)
	return nil
}

// measure counts messages that belong to the measured phase.
func (x *transfer) measure(t *tally, n int64, now time.Time) {
	if n == 0 {
		return
	}
	if !t.running() {
		x.schedule.begin(x.o.Duration)
		if x.schedule.phase() == sampling {
			t.begin(now, x.stretch())
		}
		if x.o.Duration > 0 {
			return
		}
	}
	if x.schedule.phase() == sampling {
		t.add(n, now)
	}
}

// checkLength refuses messages of another size.
func (e *endpoint) checkLength(wc *ib.WC) error {
	got := int(wc.ByteLen)
	if e.o.datagrams() {
		got -= ib.GRHLen
	}
	if got != e.size {
		return fmt.Errorf("%w: a message of %d bytes arrived, not of %d; both ends need the same size (-s, -a)",
			ErrData, got, e.size)
	}
	return nil
}
