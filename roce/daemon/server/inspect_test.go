package server

import (
	"testing"

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
	for what, look := range map[string]func(){"the list": func() { s.QPs() }, "the counts": func() { s.QPStates() }} {
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
