package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// escapes are the sequences by which text is coloured.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// openTerminal returns the two sides of a terminal of so many columns; programs have the slave.
func openTerminal(t *testing.T, columns int) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		require.Missing(t, "a pseudoterminal is needed, and /dev/ptmx cannot be opened: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal runs goroced on a terminal of so many columns, and returns what it prints there.
func onTerminal(t *testing.T, columns int, env []string, args ...string) string {
	t.Helper()
	master, slave := openTerminal(t, columns)
	cmd := exec.CommandContext(t.Context(), program, args...)
	var errors bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), slave, &errors
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	said, _ := io.ReadAll(master) // ends with EIO when nobody has the other side
	if err := cmd.Wait(); err != nil && args[0] != "doctor" {
		t.Errorf("goroced %v: %v: %s", args, err, errors.String())
	}
	return strings.ReplaceAll(string(said), "\r\n", "\n")
}

// TestTerminal runs what people look at on a terminal of 80 columns: no line wraps; with a UTF-8 locale and without
// NO_COLOR headings have colour, else there are neither colours nor characters beyond ASCII.
func TestTerminal(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	d.waits(t)
	listener, _ := serve(t, with("rping -s -a "+d.addr, d.client)...)
	t.Cleanup(func() { _ = listener.cmd.Process.Kill() })
	ends := []string{"--client", linktest.Loopback().String(), "--server", linktest.Loopback().String()}
	captures := filepath.Join("..", "..", "wire", "testdata")
	for _, c := range []struct {
		args  []string
		color bool
	}{
		{append([]string{"demo", "--drop", "0.05", "--seed", "7"}, ends...), true},
		{[]string{"decode", filepath.Join(captures, "loss_read_bw.pcap")}, true},
		{[]string{"decode", filepath.Join(captures, "v6_write_bw.pcap")}, true},
		{[]string{"decode", "-v", filepath.Join(captures, "rping.pcap")}, true},
		{[]string{"decode", "--ladder", filepath.Join(captures, "loss_read_bw.pcap")}, true},
		{[]string{"doctor"}, true},
		{[]string{"doctor", "127.0.0.1"}, true},
		{[]string{"explain"}, true},
		{[]string{"explain", "implied-nak"}, true},
		{with("devices", d.admin), false},
		{with("status", d.admin), false},
		{with("qp", d.admin), false},
		{with("mr", d.admin), false},
		{with("cm", d.admin), false},
		{with("stat", d.admin), false},
		{[]string{"help"}, false},
		{[]string{"help", "perf"}, false},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			rich := onTerminal(t, 80, append(d.env(), "LC_ALL=C.UTF-8", "TERM=xterm", "NO_COLOR="), c.args...)
			if strings.Contains(rich, "\x1b[") != c.color {
				t.Errorf("colours: %v, want %v\n%s", !c.color, c.color, rich)
			}
			fits(t, 80, escapes.ReplaceAllString(rich, ""))
			plain := onTerminal(t, 80, append(d.env(), "LC_ALL=C", "TERM=xterm", "NO_COLOR=1"), c.args...)
			fits(t, 80, plain)
			for _, r := range plain {
				if r >= utf8.RuneSelf || r == '\x1b' {
					t.Fatalf("%q without UTF-8 and with NO_COLOR, want plain ASCII:\n%s", r, plain)
				}
			}
		})
	}
	for _, test := range []string{"write bw", "read bw", "send lat"} {
		t.Run("perf "+test, func(t *testing.T) {
			t.Parallel()
			port, addr := freePort(t), linktest.Loopback().String()
			args := append(append([]string{"perf"}, strings.Fields(test)...), "-n", "20", "-p", port, "--addr")
			server, _ := startUntil(t, "waiting for a client", append(args, addr)...)
			out := onTerminal(t, 80, nil, append(args, linktest.Loopback().String(), addr)...)
			server.done(t, "the server")
			fits(t, 80, out)
			if !strings.Contains(out, "#bytes") {
				t.Error(out)
			}
		})
	}
}

// TestPiped: what people look at is 80 columns wide where no width is known.
func TestPiped(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	for _, args := range [][]string{
		{"decode", filepath.Join("..", "..", "wire", "testdata", "rping.pcap")},
		{"doctor"}, {"explain"}, {"explain", "fence"},
	} {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), d.env()...)
		out, _ := cmd.Output()
		fits(t, 80, string(out))
	}
}

// fits checks that no line is wider than the terminal.
func fits(t *testing.T, columns int, text string) {
	t.Helper()
	if text == "" {
		t.Error("nothing is printed")
	}
	for line := range strings.Lines(text) {
		width := 0
		for _, r := range strings.TrimSuffix(line, "\n") {
			if width++; r == '\t' {
				width = (width + 7) &^ 7
			}
		}
		if width > columns {
			t.Errorf("%d columns, want at most %d: %s", width, columns, line)
		}
	}
}
