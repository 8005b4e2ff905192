package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/abi"
)

// TestFullLimits: a tool that meets a limit of the daemon says which, its value and how to
// raise it; with that it runs.
func TestFullLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, low, high string
		others         bool // is met beside another client
		want           string
	}{
		{"limits.connection.cq_entries", "2", "100000", false, "CQ entries of one client is "},
		{"limits.connection.pinned", "8KiB", "1GiB", false, "bytes of memory of one client is "},
		{"limits.user.qps", "1", "2", true, "QPs of one user is 2: limit reached; allowed: 1; "},
		{"limits.user.pds", "1", "9", true, "PDs of one user is 2: limit reached; allowed: 1; "},
		{"limits.user.connections", "1", "2", true, "connections of one user is 2: limit reached; allowed: 1; "},
	} {
		t.Run(c.key, func(t *testing.T) {
			for _, value := range []string{c.low, c.high} {
				d := newServed(t, "--set", c.key+"="+value)
				if c.others {
					d.waits(t)
				}
				if value == c.high {
					d.waits(t)
					return
				}
				p, code := goroced(t, d.waiter(freePort(t))...)
				if said := p.err.String(); code != exitFailure || strings.Count(said, "\n") != 1 ||
					!strings.Contains(said, c.want) ||
					!strings.Contains(said, c.key+" in the daemon's configuration raises it") {
					t.Errorf("exit code %d, want one line that says %q and how to raise it:\n%s", code, c.want, said)
				}
			}
		})
	}
}

// waiter is a client of the daemon with a QP, a CQ and 64 KiB of memory, which waits for a
// peer.
func (d *served) waiter(port string) []string { return with("pingpong -s 65536 -p "+port, d.client) }

// waits starts a waiter, which runs until the test ends.
func (d *served) waits(t *testing.T) *process {
	t.Helper()
	port := freePort(t)
	p := start(t, d.waiter(port)...)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait(t)
	})
	waitListening(t, port)
	return p
}

// TestOtherVersion: a daemon of another version is named with its version and ours.
func TestOtherVersion(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		conn := abi.NewConn(c)
		h, body, _, _ := conn.Receive()
		hello, _ := abi.Get[abi.Hello](body)
		text, status := abi.PutError(nil, fmt.Errorf("hello: the daemon speaks version 9, the client %d to %d: %w",
			hello.MinVersion, hello.MaxVersion, abi.ErrVersion))
		_ = conn.Send(abi.Header{Op: h.Op, Seq: h.Seq, Status: status}, text)
	}()
	p, code := goroced(t, "devinfo", "--socket", socket)
	if said := p.err.String(); code != exitFailure || strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, fmt.Sprintf("the daemon speaks version 9, the client %d to %d", abi.Version,
			abi.Version)) {
		t.Errorf("exit code %d, want %d and one line of versions 9 and %d: %s", code, exitFailure, abi.Version, said)
	}
}
