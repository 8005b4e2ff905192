package device_test

import (
	"bytes"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
)

// onePort is a link with one source port, like link udp, and with runs of at most 8
// frames. One Send takes at most take runs, and none now and then.
type onePort struct {
	link.Link
	t          *testing.T
	take, turn int
}

func (p *onePort) Caps() link.Caps {
	c := p.Link.Caps()
	c.FixedSrcPort, c.RunFrames = link.Port, 8
	return c
}

func (p *onePort) Send(now ib.Instant, runs []link.Run) (int, error) {
	p.turn++
	for i := range runs {
		if n := runs[i].Frames(); n > 8 {
			p.t.Errorf("a run of %d frames, want at most the 8 that the link takes", n)
		}
	}
	return p.Link.Send(now, runs[:min(len(runs), p.turn%(p.take+1))])
}

// TestRunsAcrossQPs: if all packets have one source port, packets of many QPs to one
// destination go in the same runs, and none is lost on a link that takes only a few
// runs at a time or none at all.
func TestRunsAcrossQPs(t *testing.T) {
	const qps, size = 64, 4 << 10
	for _, take := range []int{1, 2, 64} {
		var ends []*onePort
		w := newWorld(t, 1, qps*size, stack{above: same, below: func(l link.Link) link.Link {
			ends = append(ends, &onePort{Link: l, t: t, take: take, turn: take - 1})
			return ends[len(ends)-1]
		}})
		fill(w.a.buf, 7)
		var posting []ib.QP
		for range qps {
			w.connect(ib.MTU1024, nil)
			posting = append(posting, w.a.qp)
		}
		for i, q := range posting {
			wr := ib.SendWR{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: w.a.sge(i*size, size),
				RemoteAddr: w.b.mr.Addr() + uint64(i*size), RKey: w.b.mr.RKey()}
			if _, err := q.PostSend([]ib.SendWR{wr}); err != nil {
				t.Fatal(err)
			}
		}
		for range qps {
			if wc := w.poll(w.a); wc.Status != ib.WCSuccess {
				t.Fatal(wc.Err())
			}
		}
		if !bytes.Equal(w.a.buf, w.b.buf) {
			t.Errorf("%d runs at a time: other data arrived", take)
		}
		sent := ends[0].Stats()
		if sent.TxFrames != qps*size/1024 || 4*sent.TxRuns > sent.TxFrames {
			t.Errorf("%d runs at a time: %d frames in %d runs, want %d in about a fifth", take, sent.TxFrames,
				sent.TxRuns, qps*size/1024)
		}
	}
}
