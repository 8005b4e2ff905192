package main

import (
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// TestRunGID: where perftest and the ping-pongs take an index of the GID table, `goroced run` takes an address, and
// gives them its index. Other words and programs stay as they are.
func TestRunGID(t *testing.T) {
	first, second := linktest.Loopback().String(), linktest.Loopback().String()
	d := newServed(t, "--addr", first+","+second)
	for _, c := range []struct{ args, variable, want string }{
		{"ib_write_bw -x SECOND -n 5 host", "", "ib_write_bw -x 1 -n 5 host"},
		{"ib_write_bw -n 5 -x FIRST", "SECOND", "ib_write_bw -n 5 -x 0"},
		{"/usr/bin/ib_send_lat -xSECOND", "", "/usr/bin/ib_send_lat -x1"},
		{"ib_read_bw --gid-index=SECOND -d lo", "", "no device \"lo\""},
		{"ib_read_bw --gid-index SECOND", "", "ib_read_bw --gid-index 1"},
		{"ib_read_bw host", "SECOND", "ib_read_bw -x 1 host"},
		{"ib_read_bw host", "", "ib_read_bw host"},
		{"ib_read_bw -x 3", "SECOND", "ib_read_bw -x 3"},
		{"ib_read_bw", "two", `GOROCE_GID is "two"`},
		{"ib_atomic_lat -x 10.9.9.9", "", "the daemon does not have this address; it has FIRST (index 0 of"},
		{"ibv_rc_pingpong -g ::ffff:SECOND", "", "ibv_rc_pingpong -g 1"},
		{"ibv_srq_pingpong --gid-idx=SECOND", "", "ibv_srq_pingpong --gid-idx=1"},
		{"ibv_rc_pingpong -x SECOND", "", "ibv_rc_pingpong -x SECOND"},
		{"curl -x SECOND", "SECOND", "curl -x SECOND"},
		{"ib_write_bw -- -x SECOND", "", "ib_write_bw -- -x SECOND"},
		{"ib_write_bw -x", "", "ib_write_bw -x"},
	} {
		fill := func(s string) string { return strings.NewReplacer("FIRST", first, "SECOND", second).Replace(s) }
		got, err := indexed(t.Context(), d.client[1], strings.Fields(fill(c.args)), fill(c.variable))
		if text := strings.Join(got, " "); err == nil && text != fill(c.want) {
			t.Errorf("%s, variable %q: got %s, want %s", c.args, c.variable, text, fill(c.want))
		} else if err != nil && !strings.Contains(err.Error(), fill(c.want)) {
			t.Errorf("%s, variable %q: got error %v, want one that says %q", c.args, c.variable, err, fill(c.want))
		}
	}
}
