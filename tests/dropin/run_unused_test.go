//go:build linux

package dropin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// Programs of TestRunUnused, which end with 5.
const (
	unusedNone  = "#include <stdio.h>\nint main(void) { puts(\"runs\"); return 5; }\n"
	unusedOpens = `#include <infiniband/verbs.h>
#include <stdio.h>
int main(void) {
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = list && list[0] ? ibv_open_device(list[0]) : NULL;
	puts(c ? "open" : "closed");
	return c ? 5 : 1;
}
`
	unusedClosed = `#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
	if (argc < 2)
		return 1;
	close(2);
	int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	return fd == 2 && write(fd, "data", 4) == 4 ? 5 : 1;
}
`
)

// TestRunUnused: a program that opens no RDMA device is told so, in one line at its end; one that opens a device is
// not, nor one that has started such a program, or what may yet become one.
func TestRunUnused(t *testing.T) {
	t.Parallel()
	require.Command(t, "cc")
	build := func(name, source string, flags ...string) string {
		t.Helper()
		path := filepath.Join(work, "unused-"+name+".c")
		if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		return compile(t, path, flags...)
	}
	none, static := build("none", unusedNone), build("static", unusedNone, "-static")
	opens, closed := build("opens", unusedOpens, "-libverbs"), build("closed", unusedClosed)
	u := newUser(t)
	data := filepath.Join(u.dir, "data")
	for _, c := range []struct {
		name string
		args []string
		says string // the program that the line names; "" if there is none
	}{
		{"none", []string{none}, "unused-none"},
		{"opens", []string{opens}, ""},
		{"static", []string{static}, ""},
		{"a shell, and no program of it", []string{"sh", "-c", none + "; " + none + "; exit 5"}, "sh"},
		{"bash", []string{"bash", "-c", none + "; exit 5"}, "bash"},
		{"a shell that becomes the program", []string{"sh", "-c", "exec " + none}, "unused-none"},
		{"a shell whose first child opens one", []string{"sh", "-c", opens + "; " + none + "; exit 5"}, ""},
		{"a child of a child", []string{"sh", "-c", "sh -c '" + none + "; " + opens + "'; exit 5"}, ""},
		{"a child without descriptors", []string{"python3", "-c",
			"import subprocess, sys; sys.exit(subprocess.run(['" + opens + "'], close_fds=True).returncode)"}, ""},
		{"python", []string{"python3", "-c", "import sys; sys.exit(5)"}, "python3"},
		{"a child that goes on", []string{"sh", "-c", "sleep 0.2 >/dev/null 2>&1 & exit 5"}, ""},
		{"files of the tree", []string{"sh", "-c", "ls /sys/class/infiniband; exit 5"}, ""},
		{"a run within", []string{goroced, "run", "--", "sh", "-c", goroced + " run -- " + opens}, ""},
		{"another file is its descriptor 2", []string{closed, data}, ""},
	} {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			continue
		}
		p := u.do(t, append([]string{"run", "--"}, c.args...)...)
		out, err := p.wait(t)
		if code := p.cmd.ProcessState.ExitCode(); code != 5 {
			t.Errorf("%s: exit code %d, %v, want the program's, 5:\n%s", c.name, code, err, out)
		}
		line := "goroced: run: " + c.says + " opened no RDMA device: "
		if got := strings.Count(out, "opened no RDMA device"); c.says == "" && got != 0 ||
			c.says != "" && (got != 1 || !strings.Contains(out, line)) {
			t.Errorf("%s: want %q once, or nothing if it names no program; got\n%s", c.name, line, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(u.dir, "goroce", "unused.*")); len(left) > 2 {
		t.Errorf("files %v are left, want those of the static program and of the child that goes on at most", left)
	}
	cmd := exec.Command(goroced, "run", "--", none)
	cmd.Env = append(append([]string{}, u.env...), "GOROCE_QUIET=1")
	if out, _ := u.launch(t, cmd).wait(t); out != "runs\n" {
		t.Errorf("with GOROCE_QUIET: got %q, want what the program prints alone", out)
	}
}
