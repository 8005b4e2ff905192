package conformance

import (
	"net"
	"testing"
)

// Run leads the suite against the server at the other end of conn. Each item is a subtest.
func Run(t *testing.T, conn net.Conn, p Party, o Options) {
	t.Helper()
	l, err := Lead(conn, p, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, it := range l.Plan() {
		broken := false
		t.Run(it.Name(), func(t *testing.T) {
			r := l.Do(t.Context(), it)
			broken = r.Broken
			r.report(t)
		})
		if broken {
			t.Fatalf("%s broke the run off", it.Name())
		}
	}
}

// report makes the result that of a test.
func (r *Result) report(t *testing.T) {
	t.Helper()
	switch {
	case r.Err != nil:
		t.Error(r.Err)
	case r.Skip != "":
		t.Skip("skipped: " + r.Skip)
	case r.Note != "":
		t.Log(r.Note)
	}
}

// RunPair runs the suite for two devices of this process, which may be the same device.
func RunPair(t *testing.T, here, there Party, o Options) {
	t.Helper()
	leader, server := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(server, there) }()
	Run(t, leader, here, o)
	if err := <-served; err != nil {
		t.Error(err)
	}
}
