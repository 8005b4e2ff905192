package perf

import "github.com/goroce/goroce/ib"

// stream posts the requests of one queue pair at one size. Posting allocates nothing.
type stream struct {
	qp    ib.QP
	proto ib.SendWR // the fields that all requests have in common
	data  []byte    // inline data
	mod   int64     // every mod-th request makes a completion

	local, remote   uint64 // addresses of the first place
	slot, slots     int
	step            int
	wrs             []ib.SendWR
	sges            []ib.SGE
	index           int
	posted, reaped  int64 // requests; those whose completion has been polled
	limit           int64 // requests to post, 0 for no limit
	sinceCompletion int64 // requests since the last one with a completion
}

// postBatch is the most that is posted at once.
const postBatch = 64

// newStream prepares the requests of queue pair i.
func newStream(e *endpoint, i, size, mod int, limit int64) *stream {
	o := e.o
	s := &stream{qp: e.qps[i], index: i, mod: int64(mod), limit: limit, local: e.mr.Addr() + uint64(e.mem.out(i)),
		remote: e.remote[i].vaddr}
	s.slots, s.step = places(size, e.cycle)
	if o.Test == Lat {
		s.slots = 1
	}
	n := postBatch
	if o.PostList > 0 {
		n = o.PostList
	}
	s.wrs, s.sges = make([]ib.SendWR, n), make([]ib.SGE, n)
	s.proto = ib.SendWR{Opcode: o.opcode(), RKey: e.remote[i].rkey}
	switch {
	case o.Op == Atomic && o.AtomicOp == FetchAndAdd:
		s.proto.Swap = 1
	case o.datagrams():
		s.proto.AH, s.proto.RemoteQPN, s.proto.RemoteQKey = e.ahs[i].Num(), e.remote[i].qpn, e.qkey
	case o.Op == Send:
		s.proto.RKey = 0
	}
	if size <= o.Inline {
		out := e.mem.out(i)
		s.proto.Flags, s.data = ib.SendInline, e.mem.buf[out:out+e.mem.area]
	}
	for j := range s.wrs {
		s.wrs[j] = s.proto
		s.sges[j] = ib.SGE{Length: uint32(size), LKey: e.mr.LKey()}
		if s.data == nil {
			s.wrs[j].SGL = s.sges[j : j+1]
		}
	}
	return s
}

// room returns how many requests may be posted to a queue of this depth.
func (s *stream) room(depth int) int {
	room := int64(depth) - (s.posted - s.reaped)
	if s.limit > 0 {
		room = min(room, s.limit-s.posted)
	}
	return int(room)
}

// post posts up to n requests.
func (s *stream) post(n int) error {
	n = min(n, len(s.wrs))
	for i := range n {
		s.prepare(i)
	}
	n, err := s.qp.PostSend(s.wrs[:n])
	s.posted += int64(n)
	return err
}

// prepare prepares the next request, number i of a batch.
func (s *stream) prepare(i int) {
	wr, sge := &s.wrs[i], &s.sges[i]
	offset := s.slot * s.step
	if s.slot++; s.slot == s.slots {
		s.slot = 0
	}
	sge.Addr = s.local + uint64(offset)
	if s.data != nil {
		wr.Inline = s.data[offset : offset+int(sge.Length)]
	}
	if wr.Opcode != ib.WRSend {
		wr.RemoteAddr = s.remote + uint64(offset)
	}
	wr.Flags, wr.ID = s.proto.Flags, 0
	s.sinceCompletion++
	if s.sinceCompletion == s.mod || s.posted+int64(i)+1 == s.limit {
		wr.Flags |= ib.SendSignaled
		wr.ID = workID(sendID, s.index, int(s.sinceCompletion))
		s.sinceCompletion = 0
	}
}
