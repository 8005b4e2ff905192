//go:build linux

package machine

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestLeastOf checks that the lowest limit of the process's own group and the enclosing ones is
// returned, for both versions of cgroups.
func TestLeastOf(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"system.slice/memory.max":                 "9000000\n",
		"system.slice/x.service/memory.max":       "max\n",
		"system.slice/x.service/pids.max":         "77\n",
		"memory/docker/abc/memory.limit_in_bytes": "5000\n",
		"memory/docker/memory.limit_in_bytes":     "4000\n",
		"memory/memory.limit_in_bytes":            "9223372036854771712\n",
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		list, controller string
		want             int64
	}{
		{"0::/system.slice/x.service\n", "memory", 9000000},
		{"0::/system.slice/x.service\n", "pids", 77},
		{"0::/other\n", "pids", math.MaxInt64},
		{"12:cpu,cpuacct:/docker/abc\n11:memory:/docker/abc\n0::/\n", "memory", 4000},
		{"nonsense", "memory", math.MaxInt64},
		{"0::/../../..", "memory", math.MaxInt64}, // outside of the namespace
	} {
		file1 := map[string]string{"memory": "memory.limit_in_bytes", "pids": "pids.max"}[c.controller]
		if got := leastOf(root, c.list, c.controller, c.controller+".max", file1); got != c.want {
			t.Errorf("%s of %q is %d, want %d", c.controller, c.list, got, c.want)
		}
	}
}

// TestRead checks that the capacity of each resource is plausible.
func TestRead(t *testing.T) {
	c := Read()
	t.Logf("%+v", c)
	if c.Memory < 1<<20 || c.Memory > 1<<50 || c.Mappings < 1000 || c.Descriptors < 16 || c.Threads < 8 {
		t.Errorf("%+v, want 1 MiB to 1 PiB, 1,000 mappings, 16 descriptors and 8 threads or more", c)
	}
}
