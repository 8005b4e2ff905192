package main

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// TestServersOnTerminal: on a terminal of 80 columns the lines of a server that waits fit, but for the commands to
// copy, which have lines of their own. Ctrl-C ends it with one line that says what it waited for.
func TestServersOnTerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, interrupted string }{
		{"rping -s -p 0", "a client on [::]:"},
		{"rping -s -P -p 0 -a ADDR", "a client on ADDR:"},
		{"rstream -p 0 -b ADDR", "a client on ADDR:"},
		{"rstream --iomap -p 0", "a client on [::]:"},
		{"pingpong -p PORT", "a client on TCP port PORT\n"},
		{"pingpong --service srq -p PORT", "a client on TCP port PORT\n"},
		{"perf write bw -p PORT", "a client on TCP port PORT\n"},
		{"perf send lat -R -c UD -p PORT", "a client on rdma_cm port PORT\n"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			addr := linktest.Loopback().String()
			given := strings.NewReplacer("ADDR", addr, "PORT", freePort(t))
			args := strings.Fields(given.Replace(c.args + " --addr ADDR"))
			said, code := untilWaiting(t, args)
			if want := "\ngoroced: interrupted while waiting for " + given.Replace(c.interrupted); code != 130 ||
				!strings.Contains(said, want) {
				t.Errorf("exit code %d, want 130 and %q:\n%s", code, want, said)
			}
			if !strings.Contains(said, "\n    goroced "+args[0]) {
				t.Errorf("no command for a client:\n%s", said)
			}
			fits(t, 80, withoutCommands(said))
		})
	}
}

// untilWaiting runs goroced on a terminal of 80 columns until it waits for a client, and ends it by Ctrl-C. It returns
// what was printed, and the exit code.
func untilWaiting(t *testing.T, args []string) (said string, code int) {
	t.Helper()
	master, slave := openTerminal(t, 80)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	waits := false
	for lines := bufio.NewScanner(master); lines.Scan(); { // until nobody has the other side
		said += strings.TrimSuffix(lines.Text(), "\r") + "\n"
		if !waits && strings.HasPrefix(lines.Text(), "waiting for a client") {
			waits = true
			_ = cmd.Process.Signal(syscall.SIGINT)
		}
	}
	_ = cmd.Wait()
	return said, cmd.ProcessState.ExitCode()
}

// withoutCommands drops the lines that are commands to copy.
func withoutCommands(text string) string {
	kept := ""
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "    ") {
			kept += line
		}
	}
	return kept
}

// TestErrorOnTerminal: an error is wrapped, and the command that helps has a line of its own.
func TestErrorOnTerminal(t *testing.T) {
	t.Parallel()
	master, slave := openTerminal(t, 80)
	cmd := exec.CommandContext(t.Context(), program, "pingpong", "--addr", linktest.Loopback().String(), "-p", "1",
		"127.0.0.1")
	cmd.Stderr = slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	said := ""
	for lines := bufio.NewScanner(master); lines.Scan(); {
		said += strings.TrimSuffix(lines.Text(), "\r") + "\n"
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailure ||
		!strings.HasPrefix(said, "goroced: connect to the server: ") ||
		!strings.Contains(said, "\n    goroced pingpong --service rc\n") {
		t.Errorf("exit code %d, want %d, and to start a server:\n%s", cmd.ProcessState.ExitCode(), exitFailure, said)
	}
	fits(t, 80, withoutCommands(said))
}
