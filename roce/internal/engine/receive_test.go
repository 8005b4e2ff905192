package engine

import (
	"testing"

	"github.com/goroce/goroce/roce/link"
)

// TestLimit: the next batch is one run where runs come one by one, grows to the most where there are more, and has
// about rxBytes. Runs without bytes, which anybody may send, are runs like others.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name              string
		most, runs, bytes int // of each run
		manual            bool
		want              int
	}{
		{"nothing came", rxRuns, 0, 0, false, 1},
		{"one run", rxRuns, 1, 60, false, 1},
		{"the one run that was asked for", 1, 1, 60, false, 2},
		{"all that were asked for", 8, 8, 60, false, 16},
		{"some of them", 8, 3, 60, false, rxRuns},
		{"a full batch", rxRuns, rxRuns, 60, false, rxRuns},
		{"a full batch without bytes", rxRuns, rxRuns, 0, false, rxRuns},
		{"long runs", rxRuns, rxRuns, 1 << 16, false, rxBytes >> 16},
		{"longer than a batch", rxRuns, 2, 2 * rxBytes, false, 1},
		{"virtual time", rxRuns, 1, 60, true, rxRuns},
	} {
		s := &Shard{engine: &Engine{opts: Options{Manual: c.manual}}}
		r := receiver{s: s, runs: make([]link.Run, rxRuns), most: c.most}
		in := r.runs[:c.runs]
		for i := range in {
			in[i].Buf = make([]byte, c.bytes)
		}
		if r.limit(in); r.most != c.want {
			t.Errorf("%s: the next batch has %d runs at most, want %d", c.name, r.most, c.want)
		}
	}
}
