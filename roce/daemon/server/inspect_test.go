package server

import (
	"maps"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// TestInspectionRests: whoever lists the queue pairs, or counts them for /metrics, leaves the shards alone after every
// few of them.
func TestInspectionRests(t *testing.T) {
	var s *Server
	dev := serving(t, func(made *Server) { s = made })
	pd, err := dev.AllocPD()
	must(t, err)
	cq, err := dev.CreateCQ(ib.CQInit{Entries: 1})
	must(t, err)
	const n = 3*lookBatch + 1
	for range n {
		_, err := pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: cq, RecvCQ: cq, Cap: ib.QPCap{MaxSendWR: 1,
			MaxSendSGE: 1}})
		must(t, err)
	}
	rests := 0
	s.rest = func() { rests++ }
	for what, look := range map[string]func(){"the list": func() { s.QPs() }, "the counts": func() { s.QPSums() }} {
		rests = 0
		look()
		if want := n / lookBatch; rests != want {
			t.Errorf("%s of %d queue pairs: got %d rests, want %d", what, n, rests, want)
		}
	}
	if got := len(s.QPs()); got != n {
		t.Errorf("got %d queue pairs, want %d", got, n)
	}
}

// TestPathSums: of a way that several queue pairs share each has a part, so that it counts once. Queue pairs of
// unreliable services have none.
func TestPathSums(t *testing.T) {
	sum := QPSums{Destinations: map[string]float64{}}
	shared := Traffic{Control: "cubic", Window: 100, InFlight: 40, PaceBits: 8e9, MinRTT: 50 * time.Microsecond,
		PathQPs: 4}
	for range shared.PathQPs {
		sum.addPath(&shared)
	}
	sum.addPath(&Traffic{Control: "dcqcn", Window: 16, PathQPs: 1}) // no round trip yet
	sum.addPath(&Traffic{SentBytes: 1})
	if want := map[string]float64{"cubic": 1, "dcqcn": 1}; !maps.Equal(sum.Destinations, want) {
		t.Errorf("got destinations %v, want %v", sum.Destinations, want)
	}
	if sum.Window != 116 || sum.InFlight != 40 || sum.PaceBits != 8e9 || sum.MinRTT != 50*time.Microsecond {
		t.Errorf("got %+v, want a window of 116 packets, 40 in flight, 8 Gb/s, and 50 us", sum)
	}
}
