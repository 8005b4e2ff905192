//go:build linux

package dropin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnvironment: what a list has already stays behind, and once.
func TestEnvironment(t *testing.T) {
	e := Environment{Socket: "/s", Libraries: "/l"}
	const preload = "LD_PRELOAD=/l/libgoroce-sys.so"
	for _, c := range []struct{ had, want []string }{
		{nil, []string{"GOROCED_SOCKET=/s", "LD_LIBRARY_PATH=/l", preload}},
		{[]string{"A=b", "GOROCED_SOCKET=/other", "LD_LIBRARY_PATH=/x:/y", "LD_PRELOAD="},
			[]string{"A=b", "GOROCED_SOCKET=/s", "LD_LIBRARY_PATH=/l:/x:/y", preload}},
		{[]string{"LD_LIBRARY_PATH=/l:/x", preload + ":z.so"},
			[]string{"GOROCED_SOCKET=/s", "LD_LIBRARY_PATH=/l:/x", preload + ":z.so"}},
	} {
		if diff := cmp.Diff(c.want, e.Of(c.had)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.had, diff)
		}
	}
}
