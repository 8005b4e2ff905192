package script

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
)

// claimWC takes the oldest completion of a queue and checks it and the buffer.
func (r *runner) claimWC(e *endpoint, a *args) error {
	k, err := findKind(a.next())
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(a.next(), 10, 32)
	if err != nil {
		return fmt.Errorf("a completion has the number of its request")
	}
	status := a.next()
	queue := "send"
	if k.recv {
		queue = "recv"
	}
	if v, ok := a.value("srq"); ok {
		queue = "srq=" + v
	}
	var got *wc
	if err := r.await(e, func() error { got, err = e.takeWC(queue); return err }); err != nil {
		return err
	}
	if statusNames[got.Status] != status || got.ID != id || got.QPN != e.num {
		return fmt.Errorf("what came: %s, of QP %#x", got, uint32(got.QPN))
	}
	word := k.word
	if k.recv {
		word = "recv"
	}
	mem := r.areas[bufferName(r, e, word, id)]
	if mem == nil {
		return fmt.Errorf("%s %d was never posted", word, id)
	}
	if got.Status != ib.WCSuccess {
		mem.unsure = true
		return nil
	}
	if err := r.checkWC(e, a, k, got); err != nil {
		return err
	}
	return r.checkBuffer(a, mem)
}

// await calls look for an output of e. If look fails, it asks e for packets, which may
// cause the output, and calls look again.
func (r *runner) await(e *endpoint, look func() error) error {
	e.collect()
	err := look()
	if err == nil || !e.dirty {
		return err
	}
	if err := e.pump(r.now, r.batch); err != nil {
		return err
	}
	return look()
}

// takeWC takes the oldest completion of a queue.
func (e *endpoint) takeWC(queue string) (*wc, error) {
	for i := range e.wcs {
		if e.wcs[i].queue == queue {
			c := e.wcs[i]
			e.wcs = append(e.wcs[:i:i], e.wcs[i+1:]...)
			return &c, nil
		}
	}
	return nil, fmt.Errorf("no completion came")
}

// checkWC compares the fields of a successful completion with the step.
func (r *runner) checkWC(e *endpoint, a *args, k kind, got *wc) error {
	want := wc{queue: got.queue, WC: ib.WC{ID: got.ID, Opcode: k.wc, QPN: got.QPN}}
	if k.post == ib.WRCompareSwap || k.post == ib.WRFetchAdd {
		want.ByteLen = 8
	}
	want.ByteLen = uint32(a.num("len", uint64(want.ByteLen), 32))
	for _, w := range a.words {
		if strings.HasPrefix(w, "imm=") {
			want.Flags |= ib.WCWithImm
		}
	}
	want.Imm = uint32(a.num("imm", 0, 32))
	if qp.Datagram(e.cfg.typ) && k.recv {
		want.Flags |= ib.WCGRH
		want.SrcQP = ib.QPN(a.num("from", uint64(e.peer), 24))
		want.SL = ib.SLIPv4
	}
	if v, ok := a.value("inv"); ok {
		mem := r.areas[v]
		if mem == nil {
			return fmt.Errorf("there is no region %s", v)
		}
		want.Flags |= ib.WCWithInv
		want.InvalidatedKey = mem.key
	}
	if want != *got {
		return fmt.Errorf("what came: %s", got)
	}
	return nil
}

// checkBuffer checks that a buffer holds the message that the step states, and is
// unchanged behind it.
func (r *runner) checkBuffer(a *args, mem *area) error {
	var data []byte
	if v, ok := a.value("data"); ok {
		var err error
		if data, err = parseSlices(v); err != nil {
			return err
		}
	}
	if v, ok := a.value("was"); ok {
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil {
			return err
		}
		data = number(n)
	}
	if len(data) > mem.size {
		return fmt.Errorf("%s has %d bytes", mem.name, mem.size)
	}
	mem.message(mem.want, data)
	return mem.differs(0, mem.size)
}

// claimEvent takes an asynchronous event.
func (r *runner) claimEvent(e *endpoint, a *args) error {
	name := "event " + a.next()
	return r.await(e, func() error { return e.takeEvent(name) })
}

// claimNotify takes the event of an armed completion queue.
func (r *runner) claimNotify(e *endpoint, a *args) error {
	name := "notify " + a.next()
	return r.await(e, func() error { return e.takeEvent(name) })
}

func (e *endpoint) takeEvent(name string) error {
	for i, got := range e.events {
		if got == name {
			e.events = append(e.events[:i:i], e.events[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("it did not come; what came: %q", e.events)
}

// claimMem checks that memory has the content of a claim: "R+0 = 9[0:1024]" or "R+0 = 41".
func (r *runner) claimMem(_ *endpoint, a *args) error {
	mem, off, err := r.address(a.next())
	if err != nil {
		return err
	}
	if a.next() != "=" || mem.mem == nil {
		return fmt.Errorf("write: mem R+0 = 9[0:1024], of memory that is ours")
	}
	text := a.next()
	if v, err := strconv.ParseUint(text, 0, 64); err == nil {
		return mem.claim(off, number(v))
	}
	s, err := parseSlice(text)
	if err != nil {
		return err
	}
	return mem.claim(off, s.bytes())
}

// claimState checks the QP's state.
func (r *runner) claimState(e *endpoint, a *args) error {
	want := a.next()
	return r.await(e, func() error {
		if got := e.qp.State().String(); got != want {
			return fmt.Errorf("the state is %s", got)
		}
		return nil
	})
}

// claimNothing checks that there are no outputs.
func (r *runner) claimNothing(_ *endpoint, _ *args) error {
	if err := r.settle(); err != nil {
		return err
	}
	r.show(Step{Kind: Quiet, Text: "nothing happens"})
	return nil
}

// claimTimer checks the QP's Deadline.
func (r *runner) claimTimer(e *endpoint, a *args) error {
	if err := e.pump(r.now, r.batch); err != nil {
		return err
	}
	want, at := a.next(), e.qp.Deadline()
	got := "none"
	if at != driver.Never {
		got = time.Duration(at - r.now).String()
	}
	if d, err := time.ParseDuration(want); err == nil {
		want = d.String()
	}
	if got != want {
		return fmt.Errorf("the deadline is in %s", got)
	}
	return nil
}

// claimPlacing checks how many writes to late memory are under way.
func (r *runner) claimPlacing(e *endpoint, a *args) error {
	if got := strconv.Itoa(len(e.late)); got != a.next() {
		return fmt.Errorf("there are %s", got)
	}
	return nil
}

// claimFetching checks how many reads of late memory are under way.
func (r *runner) claimFetching(e *endpoint, a *args) error {
	if err := e.pump(r.now, r.batch); err != nil {
		return err
	}
	if got := strconv.Itoa(len(e.reads)); got != a.next() {
		return fmt.Errorf("there are %s", got)
	}
	return nil
}

// claimPersisted checks how often a FLUSH made late memory persistent.
func (r *runner) claimPersisted(_ *endpoint, a *args) error {
	mem := r.areas[a.next()]
	if mem == nil || mem.slow == nil {
		return fmt.Errorf("there is no such region with late")
	}
	if got := strconv.Itoa(mem.slow.Persists); got != a.next() {
		return fmt.Errorf("it was %s times", got)
	}
	return nil
}

// claimCount checks a counter.
func (r *runner) claimCount(e *endpoint, a *args) error {
	f := reflect.ValueOf(e.stats).FieldByName(a.next())
	if !f.IsValid() {
		return fmt.Errorf("qp.Stats has no such counter")
	}
	if got := strconv.FormatUint(f.Uint(), 10); got != a.next() {
		return fmt.Errorf("it is %s", got)
	}
	return nil
}

// claimWindow checks the congestion window of the destination.
func (r *runner) claimWindow(e *endpoint, a *args) error {
	if got := strconv.Itoa(e.flow.CongestionWindow()); got != a.next() {
		return fmt.Errorf("it is %s packets", got)
	}
	return nil
}

// claimPace checks the rate at which packets leave to the destination.
func (r *runner) claimPace(e *endpoint, a *args) error {
	path := e.flow.Path()
	if got := strconv.FormatFloat(float64(path.Rate)/1e6, 'f', 0, 64); got != a.next() {
		return fmt.Errorf("it is %s Mb/s", got)
	}
	return nil
}
