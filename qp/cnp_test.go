package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/wire"
)

// TestMarks: a bottleneck that marks packets instead of losing them carries 0.9 of what it can. Once the window has
// found its size the queue is shorter than twice the threshold, and nothing is lost.
func TestMarks(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRRead} {
		for _, threshold := range []ib.Instant{ms / 10, ms / 4, ms} {
			t.Run(fmt.Sprintf("%v/%dus", op, threshold/1000), func(t *testing.T) {
				net := network{oneWay: ms / 10, rate: 0.125, buffer: 10 * ms, mark: threshold}
				x := newDevices(t, net, 1, 1)
				slow, l := &x.forth, load{op: op, size: 64 << 10, depth: 16, n: 350}
				if op == ib.WRRead {
					slow = &x.back
				}
				const first = 50 // messages in which the window finds its size
				p := x.pairs[0]
				x.passes = func(*host, *wire.Packet) bool {
					if len(p.done) < first {
						slow.longest = 0
					}
					return true
				}
				x.run(l)
				ideal := float64((l.n-first)*l.size) / 1024 * (1024 + packetOverhead) / net.rate
				got := ideal / float64(x.now-p.done[first-1])
				cnps := p.a.stats.RcvdCNPs
				t.Logf("%.2f of the link, a queue of %d us, %d CNPs", got, slow.longest/1000, cnps)
				if got < 0.9 || slow.longest > 2*threshold || slow.full > 0 {
					t.Errorf("got %.2f of the link, a queue of %d us and %d packets lost, want 0.9, %d us and none",
						got, slow.longest/1000, slow.full, 2*threshold/1000)
				}
			})
		}
	}
}

// TestCNPGap: however many packets are marked, CNPs are 50 us apart, and a window answers one a round trip.
func TestCNPGap(t *testing.T) {
	x := newDevices(t, network{oneWay: ms / 10, rate: 0.125, buffer: 10 * ms, mark: 1}, 1, 1)
	x.run(load{op: ib.WRWrite, size: 64 << 10, depth: 16, n: 50})
	p := x.pairs[0]
	if most := uint64(x.now/cnpGap) + 1; p.b.stats.SentCNPs == 0 || p.b.stats.SentCNPs > most {
		t.Errorf("got %d CNPs in %d us, want %d at most", p.b.stats.SentCNPs, x.now/1000, most)
	}
	if p.a.stats.SentCNPs != 0 {
		t.Errorf("got %d CNPs of the requester for ACKs, want none", p.a.stats.SentCNPs)
	}
	if x.flow.cc.window() < cwndMin {
		t.Errorf("got a window of %d, want %v at least", x.flow.cwnd, cwndMin)
	}
}
