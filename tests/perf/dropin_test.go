package perf

import (
	"errors"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/require"
)

// TestDropin runs programs over two daemons on loopback.
func TestDropin(t *testing.T) {
	require.FullRun(t, "it builds the libraries, which tests/dropin does, too")
	require.Command(t, "cc")
	libs, err := dropin.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(dropin.Variable, libs)
	const messages = 500
	for _, c := range []struct {
		name string
		job  Job
	}{
		{"process memory", Job{Kind: "dropin", Tool: "ib_write_bw", Size: 64 << 10, Messages: messages}},
		{"memfd", Job{Kind: "dropin", Tool: "ib_write_bw", Size: 64 << 10, Messages: messages, Memory: memfd}},
		{"latency", Job{Kind: "dropin", Tool: "ib_send_lat", Size: pingSize, Messages: messages}},
		{"cost", costOf(writeBW(4<<10, memfd), messages)},
		{"system calls", traced(writeBW(4<<10, memfd), messages)},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Command(t, c.job.Tool)
			if c.job.Trace {
				require.Command(t, "strace")
			}
			r := measureHere(t, c.job)
			if r.Messages != messages || r.Seconds <= 0 || r.Bytes < messages*float64(c.job.Size) {
				t.Errorf("measured %+v, want %d messages of %d bytes in some time", r, messages, c.job.Size)
			}
			if perMessage := callsEach.of(&r); perMessage > 2 || perMessage < -2 {
				t.Errorf("%v system calls a message, want -2 to 2", perMessage)
			}
		})
	}
}

// TestDropinMissing: without a program the row is skipped.
func TestDropinMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var skip *SkipError
	if _, err := dropinRun(&Job{Tool: "ib_write_bw"}, nil); !errors.As(err, &skip) {
		t.Errorf("%v, want that the row is skipped", err)
	}
}
