package perf

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

const (
	pingSize = 8 // payload of a ping
	// pingFrame is the size of an 8-byte WRITE ONLY, the frame of the bare ping-pong.
	pingFrame = firstHeader + pingSize + crcLen
)

// barePing sends a datagram and spins until it comes back.
func barePing(j *Job, p *peer) (Result, error) {
	s, err := newSocket(j)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	s.spin = math.MaxInt64
	out, in := make([]byte, pingFrame), make([]byte, 1<<16)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	for n := uint64(1); !m.done && !p.ended.Load(); n++ {
		binary.LittleEndian.PutUint64(out, n)
		if err := s.send(out, pingFrame); err != nil {
			return Result{}, err
		}
		for binary.LittleEndian.Uint64(in) != n && !p.ended.Load() {
			if _, _, err := s.recv(in); err != nil {
				return Result{}, err
			}
			if time.Since(began) > pingPatience {
				break // lost, or sent before the neighbour was known
			}
		}
		end := time.Now()
		m.record(began, end)
		began = end
	}
	p.finish()
	return m.result().of(2*pingSize, 2), nil
}

// pingPatience is how long a bare ping waits for its pong.
const pingPatience = 100 * time.Millisecond

// barePong sends datagrams back.
func barePong(j *Job, p *peer) (Result, error) {
	s, err := newSocket(j)
	if err != nil {
		return Result{}, err
	}
	defer s.close()
	s.spin = math.MaxInt64
	buf := make([]byte, 1<<16)
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for !p.ended.Load() {
		n, segment, err := s.recv(buf)
		if err == nil && n > 0 {
			err = s.send(buf[:n], segment)
		}
		if err != nil {
			return Result{}, err
		}
		if n > 0 {
			m.add(0)
		}
	}
	p.finish()
	return m.result(), nil
}

// pinger sends 8-byte numbers and receives those of the other end: by WRITE, polling the memory, or by SEND, polling
// the CQ.
type pinger struct {
	*end
	p    *peer
	wr   [1]ib.SendWR
	recv [1]ib.RecvWR
	wcs  [4]ib.WC
	word *uint64 // where the peer writes
	got  uint64  // latest number received
}

func newPinger(j *Job, p *peer) (*pinger, error) {
	e, err := connected(j, p)
	if err != nil {
		return nil, err
	}
	g := &pinger{end: e, p: p, word: (*uint64)(unsafe.Pointer(&e.mem[0]))}
	g.wr[0] = ib.SendWR{Opcode: j.Op, Flags: ib.SendSignaled | ib.SendInline, Inline: make([]byte, pingSize),
		RemoteAddr: e.remote.Addr, RKey: e.remote.RKey}
	g.recv[0].SGL = e.sge(pingSize)
	if j.Op == ib.WRSend {
		_, err = e.qps[0].PostRecv(g.recv[:])
	}
	if err != nil {
		_ = e.dev.Close()
		return nil, err
	}
	return g, nil
}

// send sends a number.
func (g *pinger) send(n uint64) error {
	binary.NativeEndian.PutUint64(g.wr[0].Inline, n)
	_, err := g.qps[0].PostSend(g.wr[:])
	return err
}

// wait polls until the number has arrived, or the other end is done.
func (g *pinger) wait(n uint64) error {
	for g.got < n && !g.p.ended.Load() {
		if g.wr[0].Opcode == ib.WRWrite {
			// A WRITE stores the last aligned 8 bytes at once, after the others.
			if g.got = atomic.LoadUint64(g.word); g.got >= n {
				return g.reap() // a number that has arrived at once has a completion, too
			}
		}
		if err := g.reap(); err != nil {
			return err
		}
	}
	return nil
}

// reap polls completions of requests and of received numbers.
func (g *pinger) reap() error {
	done, err := g.poll(g.wcs[:])
	for i := range g.wcs[:done] {
		if err == nil && g.wcs[i].Opcode == ib.WCRecv {
			g.got = atomic.LoadUint64(g.word)
			_, err = g.qps[0].PostRecv(g.recv[:])
		}
	}
	return err
}

func pingNear(j *Job, p *peer) (Result, error) {
	g, err := newPinger(j, p)
	if err != nil {
		return Result{}, err
	}
	defer g.dev.Close()
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	for n := uint64(1); !m.done && !p.ended.Load(); n++ {
		if err := g.send(n); err != nil {
			return Result{}, err
		}
		if err := g.wait(n); err != nil {
			return Result{}, err
		}
		end := time.Now()
		m.record(began, end)
		began = end
	}
	p.finish()
	return m.result().of(2*pingSize, 2), nil
}

func pingFar(j *Job, p *peer) (Result, error) {
	g, err := newPinger(j, p)
	if err != nil {
		return Result{}, err
	}
	defer g.dev.Close()
	m, err := p.start(j)
	if err != nil {
		return Result{}, err
	}
	for n := uint64(1); !p.ended.Load(); n++ {
		if err := g.wait(n); err != nil {
			return Result{}, err
		}
		if p.ended.Load() {
			break
		}
		if err := g.send(n); err != nil {
			return Result{}, err
		}
		m.add(0)
	}
	p.finish()
	return m.result(), nil
}
