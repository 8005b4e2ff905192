package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
)

// latCQMod is the interval of completions in a latency test, if it does not wait for each. They are rare because the
// messages themselves show the progress.
const latCQMod = 16

// volley is a latency test at one size.
type volley struct {
	*endpoint
	out     *stream
	samples samples
	limit   int64 // messages in each direction, 0 with a duration
	arrived int64
	last    pollByte // of the message that the peer writes
	mine    *byte    // last byte of the message that this end writes
}

// volley runs a latency test at one size. If ctx ends, it returns what was measured so far, and the error.
func (e *endpoint) volley(ctx context.Context, size int) (Row, error) {
	v := e.newVolley(size)
	e.schedule.set(e.o.Duration)
	defer e.schedule.cancel()
	play := v.fetch
	if e.t.twoSided {
		play = v.rally
	}
	err := play(ctx)
	if err != nil {
		err = fmt.Errorf("%w; of %d-byte messages %d were sent and %d received", err, size, v.out.posted, v.arrived)
	}
	if err != nil && (ctx.Err() == nil || v.samples.hist.TotalCount() == 0) {
		return Row{}, err
	}
	return v.samples.row(size, e.t.trips), err
}

func (e *endpoint) newVolley(size int) *volley {
	e.size = size
	v := &volley{endpoint: e}
	if e.o.Duration == 0 {
		v.limit = int64(e.o.Iters)
	}
	mod := 1
	if e.t.twoSided {
		mod = latCQMod
	}
	v.out = newStream(e, 0, size, mod, v.limit)
	v.last = newPollByte(&e.mem.buf[e.mem.in(0)+size-1])
	v.mine = &e.mem.buf[e.mem.out(0)+size-1]
	v.samples.begin()
	return v
}

// more reports whether the test goes on after n messages.
func (v *volley) more(n int64) bool {
	if v.limit > 0 {
		return n < v.limit
	}
	return v.schedule.phase() != ended
}

// rally sends messages back and forth.
func (v *volley) rally(ctx context.Context) error {
	serve := v.o.begins()
	if serve {
		v.schedule.begin(v.o.Duration)
	}
	var taken int64
	for v.more(v.out.posted) || v.more(taken) {
		if v.more(taken) && !serve {
			if err := v.await(ctx, taken+1); err != nil {
				return err
			}
			taken++
			v.schedule.begin(v.o.Duration)
		}
		serve = false
		if v.more(v.out.posted) {
			if err := v.send(ctx); err != nil {
				return err
			}
		}
	}
	return v.drain(ctx)
}

// send sends the next message, and replaces a used receive while it is on its way.
func (v *volley) send(ctx context.Context) error {
	for v.out.room(v.o.sendDepth()) <= 0 {
		if err := v.reap(ctx); err != nil {
			return err
		}
	}
	if v.t.memory {
		*v.mine = byte(v.out.posted + 1)
	}
	v.tick()
	if err := v.out.post(1); err != nil {
		return err
	}
	if !v.o.receives() {
		return nil
	}
	return v.restockQP(0)
}

// tick records the time of a message.
func (v *volley) tick() {
	v.done.Add(1)
	if v.schedule.phase() == sampling {
		v.samples.tick(time.Now())
	}
}

// await waits for message n of the peer, or the end of the run. Polling the completion queue also drives the software
// device.
func (v *volley) await(ctx context.Context, n int64) error {
	for v.arrived < n && v.more(n-1) {
		if v.t.memory && v.last.load() == byte(n) {
			v.patience.hit()
			v.arrived++
			return nil
		}
		if err := v.reap(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reap polls completions.
func (v *volley) reap(ctx context.Context) error {
	n, err := v.poll(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		wc := &v.wcs[i]
		if err := wc.Err(); err != nil {
			return v.explain(err)
		}
		if workKind(wc.ID) == sendID {
			v.out.reaped += workCount(wc.ID)
			continue
		}
		if err := v.checkLength(wc); err != nil {
			return err
		}
		v.stock[0]--
		v.arrived++
	}
	return nil
}

// drain waits until all messages are acknowledged. The peer of a Write test may have left: ib_write_lat ends as soon as
// it has seen the last byte.
func (v *volley) drain(ctx context.Context) error {
	for v.limit > 0 && v.out.reaped < v.out.posted {
		err := v.reap(ctx)
		if v.t.memory && (errors.Is(err, ErrPeerLeft) || errors.Is(err, &ib.WCError{Status: ib.WCRetryExcErr})) {
			fmt.Fprintln(v.o.Log,
				"the last acknowledgement was lost, and the peer has left since: as far as this end can see, all "+
					"went well")
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch executes READs or atomics one after the other.
func (v *volley) fetch(ctx context.Context) error {
	v.schedule.begin(v.o.Duration)
	for v.more(v.out.posted) {
		v.tick()
		if err := v.out.post(1); err != nil {
			return err
		}
		for v.out.reaped < v.out.posted {
			if err := v.reap(ctx); err != nil {
				return err
			}
		}
		v.arrived++
	}
	return nil
}
