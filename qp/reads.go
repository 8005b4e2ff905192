package qp

import "github.com/goroce/goroce/ib"

// readReq is a READ or atomic request that waits for its responses.
type readReq struct {
	slot  uint32
	first ib.PSN
	npsn  int32
	next  ib.PSN // PSN of the next response
}

func (r *readReq) end() ib.PSN { return r.first.Add(int(r.npsn)) }

// readTable holds the READs and atomics in flight, oldest first. Its size is the
// initiator depth, MaxRdAtomic: the responder has no more resources.
type readTable struct {
	reqs []readReq
	head int32
	n    int32
}

func (t *readTable) size(n int) {
	if n != len(t.reqs) {
		t.reqs = make([]readReq, n)
	}
	t.reset()
}

func (t *readTable) reset()      { t.head, t.n = 0, 0 }
func (t *readTable) empty() bool { return t.n == 0 }
func (t *readTable) left() int   { return len(t.reqs) - int(t.n) }

func (t *readTable) at(i int32) *readReq { return &t.reqs[int(t.head+i)%len(t.reqs)] }

// oldest returns the request whose responses come next; nil if there is none.
func (t *readTable) oldest() *readReq {
	if t.n == 0 {
		return nil
	}
	return &t.reqs[t.head]
}

func (t *readTable) push(slot uint32, first ib.PSN, npsn int) *readReq {
	r := t.at(t.n)
	t.n++
	*r = readReq{slot: slot, first: first, npsn: int32(npsn), next: first}
	return r
}

func (t *readTable) pop() {
	t.head = (t.head + 1) % int32(len(t.reqs))
	t.n--
}

// find returns the request that a PSN belongs to; nil if none.
func (t *readTable) find(psn ib.PSN) *readReq {
	for i := range t.n {
		r := t.at(i)
		if d := psn.Sub(r.first); d >= 0 && d < int(r.npsn) {
			return r
		}
	}
	return nil
}
