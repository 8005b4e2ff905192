package control

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

var errGuestLost = errors.New("guest lost")

// connect returns a client of a server in this process, which runs commands on
// this machine, and the server's end of the stream.
func connect(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() { _ = Serve(theirs) }()
	c := NewClient(ours, time.Minute, func(err error) error {
		return errors.Join(errGuestLost, err)
	})
	t.Cleanup(func() { c.Close() })
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, theirs
}

func run(t *testing.T, c *Client, ctx context.Context, stdin string, args ...string) (Result, error) {
	t.Helper()
	p, err := c.Start(ctx, []byte(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return p.Wait()
}

func TestCommandResult(t *testing.T) {
	c, _ := connect(t)
	tests := []struct {
		name  string
		stdin string
		args  []string
		want  Result
	}{
		{"output is exact", "", []string{"printf", "a\n\n b"}, Result{Stdout: "a\n\n b"}},
		{"streams are apart", "", []string{"sh", "-c", "echo out; echo err >&2"},
			Result{Stdout: "out\n", Stderr: "err\n"}},
		{"exit code", "", []string{"sh", "-c", "exit 3"}, Result{ExitCode: 3}},
		{"killed by a signal", "", []string{"sh", "-c", "kill -TERM $$"}, Result{ExitCode: 143}},
		{"standard input", "one\x00two", []string{"cat"}, Result{Stdout: "one\x00two"}},
		{"no standard input", "", []string{"cat"}, Result{}},
		{"child holds the output", "", []string{"sh", "-c", "sleep 60 & echo done"}, Result{Stdout: "done\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := run(t, c, t.Context(), test.stdin, test.args...)
			if err != nil || got != test.want {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func TestCommandNotFound(t *testing.T) {
	c, _ := connect(t)
	if _, err := run(t, c, t.Context(), "", "no-such-program"); err == nil {
		t.Error("no error for a program that does not exist")
	}
	if _, err := run(t, c, t.Context(), ""); err == nil {
		t.Error("no error for an empty command")
	}
}

func TestOutputIsBounded(t *testing.T) {
	c, _ := connect(t)
	got, err := run(t, c, t.Context(), "", "head", "-c", "5000000", "/dev/zero")
	if err != nil || len(got.Stdout) != MaxOutput || !got.Truncated {
		t.Errorf("got %d bytes, truncated %v, %v; want %d bytes, truncated", len(got.Stdout), got.Truncated, err,
			MaxOutput)
	}
}

func TestCommandsRunAtOnce(t *testing.T) {
	c, _ := connect(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if got, err := run(t, c, t.Context(), "x", "sh", "-c", "cat; echo y >&2"); err != nil ||
				got.Stdout != "x" || got.Stderr != "y\n" {
				t.Errorf("got %+v, %v; want x and y", got, err)
			}
		})
	}
	group.Wait()
}

func TestTimeoutEndsCommand(t *testing.T) {
	c, _ := connect(t)
	var got Result
	var err error
	// Until the shell begins in time.
	for limit := 50 * time.Millisecond; got.Stdout == "" && limit < time.Minute; limit *= 2 {
		got, err = run(t, c, contextWithTimeout(t, limit), "", "sh", "-c", "echo begun; sleep 60")
	}
	if !errors.Is(err, context.DeadlineExceeded) || got.ExitCode != exitKilled || got.Stdout != "begun\n" {
		t.Errorf("got %+v, %v; want the output, exit code %d, deadline exceeded", got, err, exitKilled)
	}
}

// TestGuestKeepsTime checks the bound that holds when the client is silent.
func TestGuestKeepsTime(t *testing.T) {
	done := execute(contextWithTimeout(t, 50*time.Millisecond), request{ID: 1, Args: []string{"sleep", "60"}},
		func(reply) {})
	if !done.TimedOut || done.ExitCode != exitKilled {
		t.Errorf("got %+v, want timed out", done)
	}
}

func contextWithTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCancelEndsCommand(t *testing.T) {
	c, _ := connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := c.Start(ctx, nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

func TestKill(t *testing.T) {
	c, _ := connect(t)
	p, err := c.Start(t.Context(), nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Wait(); err != nil || got.ExitCode != exitKilled {
		t.Errorf("got %+v, %v; want exit code %d", got, err, exitKilled)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("second kill: %v", err)
	}
}

func TestStreamEnds(t *testing.T) {
	c, guest := connect(t)
	p, err := c.Start(t.Context(), nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	guest.Close()
	if _, err := p.Wait(); !errors.Is(err, errGuestLost) {
		t.Errorf("command under way: %v, want %v", err, errGuestLost)
	}
	if _, err := c.Start(t.Context(), nil, "true"); !errors.Is(err, errGuestLost) {
		t.Errorf("next command: %v, want %v", err, errGuestLost)
	}
}

func TestClose(t *testing.T) {
	c, _ := connect(t)
	p, err := c.Start(t.Context(), nil, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := p.Wait(); !errors.Is(err, ErrClosed) || errors.Is(err, errGuestLost) {
		t.Errorf("got %v, want only %v", err, ErrClosed)
	}
}

// TestHungGuest has a guest that reads requests and never answers: the client must
// close the stream soon after the command's timeout.
func TestHungGuest(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	c := NewClient(ours, 50*time.Millisecond, func(err error) error {
		return errors.Join(errGuestLost, err)
	})
	defer c.Close()
	_, err := run(t, c, contextWithTimeout(t, 50*time.Millisecond), "", "true")
	if !errors.Is(err, errGuestLost) || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("got %v, want a lost guest that hangs", err)
	}
}
