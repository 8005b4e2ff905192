package perf

import "github.com/goroce/goroce/ib"

// pollBatch is the number of completions of one poll.
const pollBatch = 64

// streamer keeps requests in flight on every QP.
type streamer struct {
	*end
	wrs  [][]ib.SendWR // of each QP; their ID is its index
	free []int         // how many of them may be posted
	wcs  []ib.WC
}

func newStreamer(j *Job, e *end) *streamer {
	s := &streamer{end: e, wrs: make([][]ib.SendWR, len(e.qps)), free: make([]int, len(e.qps)),
		wcs: make([]ib.WC, pollBatch)}
	for i := range s.wrs {
		s.free[i] = j.Depth
		for range j.Depth {
			s.wrs[i] = append(s.wrs[i], ib.SendWR{ID: uint64(i), Opcode: j.Op, Flags: ib.SendSignaled,
				SGL: e.sge(j.Size), RemoteAddr: e.remote.Addr, RKey: e.remote.RKey})
		}
	}
	return s
}

// fill fills the send queue of a QP.
func (s *streamer) fill(qp uint64) error {
	if s.free[qp] == 0 {
		return nil
	}
	_, err := s.qps[qp].PostSend(s.wrs[qp][:s.free[qp]])
	s.free[qp] = 0
	return err
}

// turn posts requests again that have completed, and returns their number.
func (s *streamer) turn() (int, error) {
	n, err := s.poll(s.wcs)
	for i := range s.wcs[:n] {
		s.free[s.wcs[i].ID]++
	}
	for i := range s.wcs[:n] {
		if err == nil {
			err = s.fill(s.wcs[i].ID)
		}
	}
	return n, err
}

// streamNear counts completions.
func streamNear(j *Job, p *peer) (Result, error) {
	e, err := connected(j, p)
	if err != nil {
		return Result{}, err
	}
	defer e.dev.Close()
	s := newStreamer(j, e)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for i := range e.qps {
		if err := s.fill(uint64(i)); err != nil {
			return Result{}, err
		}
	}
	for !m.done {
		n, err := s.turn()
		if err != nil {
			return Result{}, err
		}
		m.add(n)
	}
	p.finish()
	return m.result().of(j.Size, packets(j.Size, pathMTU(j.MTU))), nil
}

// streamFar is the passive end of WRITEs and READs, and receives SENDs.
func streamFar(j *Job, p *peer) (Result, error) {
	e, err := connected(j, p)
	if err != nil {
		return Result{}, err
	}
	defer e.dev.Close()
	if j.Op == ib.WRSend {
		return e.receive(j, p)
	}
	return standBy(j, p)
}

// receive keeps the receive queue filled.
func (e *end) receive(j *Job, p *peer) (Result, error) {
	recvs := make([]ib.RecvWR, j.Depth)
	for i := range recvs {
		recvs[i].SGL = e.sge(j.Size)
	}
	if _, err := e.qps[0].PostRecv(recvs); err != nil {
		return Result{}, err
	}
	wcs := make([]ib.WC, pollBatch)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for !p.ended.Load() {
		n, err := e.poll(wcs)
		if err == nil && n > 0 {
			_, err = e.qps[0].PostRecv(recvs[:n])
		}
		if err != nil {
			return Result{}, err
		}
		m.add(0)
	}
	p.finish()
	return m.result(), nil
}
