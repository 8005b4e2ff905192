package perf

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/require"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// BenchmarkRows measures a few rows in one round, as cmd/perf does, and prints its
// table.
func BenchmarkRows(b *testing.B) {
	needsWires(b)
	rep, err := Run(b.Context(), Options{
		Rounds:   1,
		Duration: time.Second,
		Rows:     regexp.MustCompile("^RC WRITE (64 KiB|8 B)|^RC SEND 8 B|idle"),
		MTUs:     []int{1500},
		Progress: io.Discard,
	})
	if err != nil {
		b.Fatal(err)
	}
	fmt.Println()
	if err := rep.WriteTable(os.Stdout); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
}

func needsWires(t testing.TB) {
	t.Helper()
	require.Root(t)
	for _, name := range []string{"iperf3", "iptables", "ethtool"} {
		require.Command(t, name)
	}
}

// TestRun takes one short round on every kind of wire but the guests.
func TestRun(t *testing.T) {
	needsWires(t)
	rep, err := Run(t.Context(), Options{
		Rounds:   1,
		Duration: 100 * time.Millisecond,
		Rows:     regexp.MustCompile("^RC WRITE 64 KiB$|ordinary user|ring loop|^RC.* 1 into one"),
		MTUs:     []int{9000, 1500},
		Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[WireID]int{ // rows, with those that they are held against
		{Kind: veth, MTU: 9000}: 6, {Kind: veth, MTU: 1500}: 6, {Kind: xdp, MTU: 1500}: 1,
		{Kind: bridge, MTU: 9000}: 1, {Kind: bridge, MTU: 9000, Loss: 0.1}: 1, {Kind: bridge, MTU: 9000, Loss: 1}: 1,
		{Kind: incast, MTU: 9000}: 1,
	}
	for _, w := range rep.Wires {
		if len(w.Rows) != want[w.WireID] {
			t.Errorf("%v: %d rows, want %d", w.WireID, len(w.Rows), want[w.WireID])
		}
		delete(want, w.WireID)
		for _, r := range w.Rows {
			// AF_XDP is optional in kernels.
			if s := r.Samples[0]; r.Skipped == "" && (s == nil || s.Value < 0) || r.Skipped != "" && w.Kind != xdp {
				t.Errorf("%v, %s: sample %+v, skipped %q; want a sample, or a row of AF_XDP skipped", w.WireID, r.Name,
					s, r.Skipped)
			}
			if r.Skipped == "" && len(r.Verdicts) != len(r.row.Bars) {
				t.Errorf("%v, %s: %d verdicts, want one on each of %d bars", w.WireID, r.Name, len(r.Verdicts),
					len(r.row.Bars))
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("wires that were not measured: %v", want)
	}
}
