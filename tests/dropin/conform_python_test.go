//go:build linux

package dropin

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// pythonTests are rdma-core's own tests, of package python3-pyverbs. Debian compresses the larger ones.
const pythonTests = "/usr/share/doc/rdma-core/tests"

// copyPythonTests copies the tests to where they can be run.
func copyPythonTests(t *testing.T) string {
	t.Helper()
	files, _ := filepath.Glob(pythonTests + "/*.py*")
	if len(files) == 0 {
		require.Missing(t, "package python3-pyverbs, with %s, is not installed", pythonTests)
	}
	dir := userDir(t)
	if err := os.Mkdir(filepath.Join(dir, "tests"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, zipped := strings.CutSuffix(filepath.Base(file), ".gz")
		if err := copyText(filepath.Join(dir, "tests", name), file, zipped); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func copyText(to, from string, zipped bool) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if zipped {
		if r, err = gzip.NewReader(f); err != nil {
			return err
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// pythonModules are the tests of what any device may have, and how many of each pass.
var pythonModules = []struct {
	name   string
	passes int
	full   bool // only with GOROCE_FULL=1: the rules show it, too
}{
	{name: "test_device", passes: 12},
	{name: "test_addr", passes: 3, full: true},
	{name: "test_pd", passes: 4, full: true},
	{name: "test_cq", passes: 4, full: true},
	{name: "test_cqex", passes: 5, full: true},
	{name: "test_cq_events", passes: 2},
	{name: "test_qp", passes: 21},
	{name: "test_qpex", passes: 20, full: true},
	{name: "test_mr", passes: 12, full: true},
	{name: "test_atomic", passes: 9, full: true},
	{name: "test_parent_domain", passes: 5, full: true},
	{name: "test_relaxed_ordering", passes: 3, full: true},
	{name: "test_odp", passes: 15, full: true},
	{name: "test_fork", passes: 1},
}

// pythonSkips are the reasons for which tests are skipped: what rdma_rxe has not either, what takes root, and what
// machines need not have.
var pythonSkips = regexp.MustCompile(`^(Device memory is not supported` +
	`|To Create RAW QP must be done by root on Ethernet link layer` +
	`|There are no huge pages of size 2M allocated` +
	`|Allocating dmabuf is not supported by .*` +
	`|All gid indices populated, cannot check bad flow)$`) // the table has no empty rows

// TestConformPython: rdma-core's tests find in the device what they find in an RNIC.
func TestConformPython(t *testing.T) {
	besides(t)
	dir := copyPythonTests(t)
	h := newHost(t, nil)
	for _, m := range pythonModules {
		t.Run(m.name, func(t *testing.T) {
			repeats(t, m.full)
			out := h.run(t, "env", "-C", dir, "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", "tests/run_tests.py",
				"--dev", "goroce_lo", "--gid", "0", "-v", m.name).ok(t)
			if passed := len(regexp.MustCompile(`(?m)(\.\.\. |^)ok$`).FindAllString(out, -1)); passed < m.passes {
				t.Errorf("%d pass, want %d:\n%s", passed, m.passes, out)
			}
			for _, skip := range regexp.MustCompile(`skipped ['"](.*)['"]\n`).FindAllStringSubmatch(out, -1) {
				if !pythonSkips.MatchString(skip[1]) {
					t.Errorf("skipped: %s\n%s", skip[1], out)
				}
			}
		})
	}
}
