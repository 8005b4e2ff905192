package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// parentEnv has the socket of the daemon in a process that is the parent of TestForkedChild.
const parentEnv = "GOROCE_FORK_TEST_SOCKET"

// parent connects to a daemon, opens a device, and leaves its socket to a child that lives until the end
// of their standard input. It says so, and waits to be killed.
func parent(t *testing.T, socket string) {
	u, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: socket})
	must(t, err)
	begin(t, abi.NewConn(u))
	file, err := u.File()
	must(t, err)
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{file}
	must(t, child.Start())
	fmt.Println("child", child.Process.Pid)
	for {
		time.Sleep(time.Hour) // not select {}: Go's runtime ends a process all of whose goroutines wait
	}
}

// TestUnwatched checks that a client is refused if there is no descriptor to watch its process with.
func TestUnwatched(t *testing.T) {
	s, _ := newServer(t)
	c := newBareSession(t, s)
	c.unwatchProcess()
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: before.Max}))
	err := c.watchProcess()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("without a descriptor: %v, want EMFILE", err)
	}
	must(t, c.watchProcess())
}

// TestForkedChild checks that a session ends with the process that has connected, although a child of it
// still holds the socket, and that it does not end as long as both live.
func TestForkedChild(t *testing.T) {
	if socket := os.Getenv(parentEnv); socket != "" {
		parent(t, socket)
	}
	s, listener := newServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	exe, err := os.Executable()
	must(t, err)
	first := exec.Command(exe, "-test.run=^"+t.Name()+"$")
	first.Env = append(os.Environ(), parentEnv+"="+listener.Addr().String())
	in, end, err := os.Pipe()
	must(t, err)
	defer end.Close() // ends the child
	first.Stdin = in
	out, err := first.StdoutPipe()
	must(t, err)
	must(t, errors.Join(first.Start(), in.Close()))
	t.Cleanup(func() { _ = first.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	var child int
	if _, err := fmt.Sscanf(strings.TrimSpace(line), "child %d", &child); err != nil || s.Clients() != 1 {
		t.Fatalf("%q, %d clients: %v; want 1 client", line, s.Clients(), err)
	}
	must(t, first.Process.Kill())
	_ = first.Wait() // it was killed
	require.Until(t, "the session ends", func() bool { return s.Clients() == 0 })
	if err := unix.Kill(child, 0); err != nil {
		t.Errorf("the child, which holds the socket: %v", err)
	}
}
