package simtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/wire"
)

// recorder keeps the last frames that hosts have sent, for the report of a failure, and a digest of all: of their
// times, addresses, lengths and base transport headers. What follows these has addresses of memory, which differ from
// run to run.
type recorder struct {
	mu    sync.Mutex
	all   hash.Hash
	count int // of frames sent
	last  [256]frame
}

// frame is a frame that a host has sent.
type frame struct {
	at       ib.Instant
	from     int // the host's index
	src, dst ib.GID
	bytes    []byte // from BTH to ICRC
	lost     bool
}

func (r *recorder) sent(now ib.Instant, from int, runs []link.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range runs {
		for j := range runs[i].Frames() {
			r.add(now, from, &runs[i], runs[i].Frame(j))
		}
	}
}

func (r *recorder) add(now ib.Instant, from int, run *link.Run, bytes []byte) {
	f := &r.last[r.count%len(r.last)]
	r.count++
	*f = frame{at: now, from: from, src: run.Src, dst: run.Dst, bytes: append(f.bytes[:0], bytes...)}
	if r.all == nil {
		r.all = sha256.New()
	}
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], uint64(now))
	binary.BigEndian.PutUint64(head[8:], uint64(len(bytes)))
	r.all.Write(head[:])
	r.all.Write(run.Src[:])
	r.all.Write(run.Dst[:])
	r.all.Write(bytes[:wire.BTHLen])
}

// dropped marks the latest such frame as lost.
func (r *recorder) dropped(frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := r.count - 1; i >= max(0, r.count-len(r.last)); i-- {
		if f := &r.last[i%len(r.last)]; !f.lost && bytes.Equal(f.bytes, frame) {
			f.lost = true
			return
		}
	}
}

func (r *recorder) sum() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		return nil
	}
	return r.all.Sum(nil)
}

// ladder draws the last frames between the two hosts that the latest frame is between.
func (r *recorder) ladder(n *Net) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == 0 {
		return "none was sent\n"
	}
	latest := &r.last[(r.count-1)%len(r.last)]
	l := trace.Ladder{Left: latest.src.Addr().String(), Right: latest.dst.Addr().String()}
	others := 0
	for i := max(0, r.count-len(r.last)); i < r.count; i++ {
		f := &r.last[i%len(r.last)]
		left := f.src == latest.src && f.dst == latest.dst
		if !left && (f.src != latest.dst || f.dst != latest.src) {
			others++
			continue
		}
		l.Packet(f.at, left, f.label()).Lost = f.lost
	}
	text := l.Text(trace.TextOptions{Width: 100, Fold: 8})
	if others > 0 {
		text += fmt.Sprintf("and %d packets between other addresses\n", others)
	}
	return text
}

func (f *frame) label() string {
	var p wire.Packet
	if err := p.Decode(f.bytes[:max(len(f.bytes)-wire.ICRCLen, 0)]); err != nil {
		return err.Error()
	}
	return trace.ShortLabel(&p)
}
