//go:build linux

package dropin

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// example returns the path of a file of folder examples.
func example(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../examples", file))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// says ends the test unless a program says just that, and ends well.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	if got := p.ok(t); got != want {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
}

// TestExampleCPP: the client in C++ is built as it says itself, and runs.
func TestExampleCPP(t *testing.T) {
	needVerbs(t)
	program := filepath.Join(userDir(t), "ping")
	cmd := exec.Command(require.Command(t, "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-o", program,
		example(t, "cpp/ping.cpp"), "-libverbs")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	newHost(t, nil).run(t, program).says(t, "ping: hello from C++\npong\n")
	if devices, _ := os.ReadDir("/sys/class/infiniband"); len(devices) > 0 {
		return
	}
	cmd = exec.Command(program) // which finds no device
	cmd.Env = clean()
	var exit *exec.ExitError
	if out, err := cmd.CombinedOutput(); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.HasPrefix(string(out), "ping: open the first device: ") {
		t.Errorf("without a device: %v, want exit code 1 and the reason\n%s", err, out)
	}
}

// TestExampleC: the server and the client in C are built as the file says, and run on a host each.
func TestExampleC(t *testing.T) {
	needVerbs(t)
	program := filepath.Join(userDir(t), "ping")
	cmd := exec.Command(require.Command(t, "cc"), "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-o", program,
		example(t, "c/ping.c"), "-lrdmacm", "-libverbs")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	a, b := newHost(t, nil), newHost(t, nil)
	server := a.run(t, program, "server")
	require.Until(t, "the server listens", func() bool {
		server.mustRun(t)
		return strings.Contains(server.out.String(), "listening")
	})
	b.run(t, program, "client", a.addr.String()).says(t, "")
	server.says(t, "listening\nthe client has written: hello from C\n")
}

// TestExamplePython: the client in Python runs.
func TestExamplePython(t *testing.T) {
	python := "/usr/bin/python3" // which has Debian's modules
	if exec.Command(python, "-c", "import pyverbs.device").Run() != nil {
		require.Missing(t, "package python3-pyverbs is not installed")
	}
	script := filepath.Join(userDir(t), "ping.py")
	if err := copyText(script, example(t, "pyverbs/ping.py"), false); err != nil {
		t.Fatal(err)
	}
	newHost(t, nil).run(t, "env", "PYTHONDONTWRITEBYTECODE=1", python, script).says(t,
		"ping: hello from Python\npong\n")
}
