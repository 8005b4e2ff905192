package qp

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/wire"
)

// TestResponsesPaced: responses leave at once. Once two in a row were lost they leave in quanta of 50 us, faster than
// READs ask for them, but what is asked for again leaves at once; five seconds later it is over.
func TestResponsesPaced(t *testing.T) {
	for _, trains := range []bool{false, true} {
		t.Run(fmt.Sprintf("trains=%v", trains), func(t *testing.T) {
			const each, n = ms / 2, 64
			h := newHost(t, ourNum)
			h.q.cfg.Trains = trains
			h.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
			x := reader{host: h, psn: peerPSN}
			for i := range 3 * n {
				if at := x.read(n); at != 0 {
					t.Fatalf("READ %d: the last response leaves after %d ns, want 0", i, at)
				}
				x.now += each
			}
			x.ask(x.psn.Add(-n/2), 2)
			if got := len(h.emit(x.now, 128)); got != 2 {
				t.Errorf("asked again: got %d responses at once, want 2", got)
			}
			took := ib.Instant(0)
			for range 3 * n {
				took = x.read(n)
				x.now += each - took
			}
			if least, most := each/2, each*3/4; took < least || took > most {
				t.Errorf("after a loss: the last response leaves after %d ns, want %d to %d", took, least, most)
			}
			if x.most > n/4 {
				t.Errorf("after a loss: got %d responses at once, want %d at most", x.most, n/4)
			}
			for range 3 * n { // a peer that reads now and then
				took = x.read(n)
				x.now += 20*ms - took
				x.host.q.resp.lossy.congested(x.now)
			}
			if took > spreadMost {
				t.Errorf("READs 20 ms apart: the last response leaves after %d ns, want %d at most", took, spreadMost)
			}
			x.now += 2 * responsesPacedFor
			if at := x.read(n); at != 0 {
				t.Errorf("long after it: the last response leaves after %d ns, want 0", at)
			}
		})
	}
}

// reader is the peer of a host, and reads.
type reader struct {
	host *host
	now  ib.Instant
	psn  ib.PSN
	most int // responses that have left at once in the latest READ
}

// read asks for n responses, and returns how long it takes until the last has left.
func (x *reader) read(n int) ib.Instant {
	start := x.now
	x.ask(x.psn, n)
	x.psn = x.psn.Add(n)
	x.most = 0
	for left := n; ; {
		got := len(x.host.emit(x.now, 128))
		x.most = max(x.most, got)
		if left -= got; left == 0 {
			return x.now - start
		}
		if x.host.q.Deadline() == driver.Never {
			x.host.t.Fatalf("%d responses are left, and no timer is set", left)
		}
		x.now = max(x.now, x.host.q.Deadline())
		x.host.q.HandleTimeout(x.now)
	}
}

// ask asks for n responses from psn on.
func (x *reader) ask(psn ib.PSN, n int) {
	p := request(wire.RCReadRequest, psn, nil)
	p.RETH = wire.RETH{VA: memAddr + uint64(psn.Sub(peerPSN)%64)*1024, RKey: x.host.region.Key(), Len: uint32(n) * 1024}
	x.host.handle(x.now, p)
}
