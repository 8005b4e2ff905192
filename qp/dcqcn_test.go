package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/require"
)

// TestDCQCN: with switches that mark, flows fill a bottleneck, lose hardly anything, when they
// begin, and share it.
func TestDCQCN(t *testing.T) {
	require.NoRace(t, "millions of packets")
	for _, flows := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(flows), func(t *testing.T) {
			t.Parallel()
			const rate = 0.125
			x := newSenders(t, flows, network{oneWay: ms / 100, rate: rate, buffer: 10 * ms, mark: ms / 10}, 1)
			for i, p := range x.pairs {
				x.senders[i] = NewFlow(FlowConfig{Control: DCQCN})
				p.a.q.SetFlow(x.senders[i])
			}
			l := load{op: ib.WRWrite, size: 64 << 10, depth: 32, n: 1600 / flows}
			x.run(l)
			first, last := x.now, x.now
			for _, p := range x.pairs {
				first = min(first, p.done[len(p.done)-1])
			}
			got := float64(l.n*flows*l.size) / 1024 * (1024 + packetOverhead) / rate / float64(x.now)
			t.Logf("%.3f of the link, the first is done after %.3f of the time, a queue of %d us, %d packets lost", got,
				float64(first)/float64(last), x.forth.longest/1000, x.forth.full)
			if got < 0.85 || float64(first) < 0.7*float64(last) || x.forth.full > l.n*flows*l.size/1024/100 {
				t.Errorf("got %.3f of the link, the first after %.3f of the time, %d lost, want 0.85, 0.7, 1 %%", got,
					float64(first)/float64(last), x.forth.full)
			}
		})
	}
}

// TestDCQCNRate: the rate after CNPs. The first one halves it, later ones take the less the rarer they are, and half of
// the way back is done in 300 us.
func TestDCQCNRate(t *testing.T) {
	f := NewFlow(FlowConfig{Control: DCQCN})
	d := f.cc.(*dcqcn)
	f.rtt.sure(10_000)
	now := ib.Instant(ms)
	f.onMark(now)
	if want := dcqcnLine / 2; d.rate != want || d.target != dcqcnLine {
		t.Errorf("after a CNP got a rate of %v, back to %v, want %v, %v", d.rate, d.target, want, dcqcnLine)
	}
	if f.onMark(now + 1000); d.rate != dcqcnLine/2 {
		t.Errorf("got a rate of %v after a CNP 1 us later, want %v", d.rate, dcqcnLine/2)
	}
	now += dcqcnTimer
	if f.onACK(now, 1); d.rate != dcqcnLine*3/4 {
		t.Errorf("got a rate of %v after 300 us, want %v", d.rate, dcqcnLine*3/4)
	}
	for range 10_000 {
		now += cnpGap
		f.onMark(now)
	}
	if d.rate != dcqcnLeast {
		t.Errorf("got a rate of %v after a storm of CNPs, want %v", d.rate, dcqcnLeast)
	}
	for range 2000 {
		now += dcqcnTimer
		f.onACK(now, 1)
	}
	if d.rate < dcqcnLine*0.9 {
		t.Errorf("got a rate of %v 600 ms later, want %v", d.rate, dcqcnLine)
	}
}
