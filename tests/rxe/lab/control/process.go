package control

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// MaxOutput bounds what is kept of each output stream of a command, in bytes.
const MaxOutput = 4 << 20

// Result is the output and the exit code of a command.
type Result struct {
	Stdout    string
	Stderr    string
	Truncated bool // an output was longer than MaxOutput; only its start was kept
	ExitCode  int  // 128 + n when signal n ended the command
}

// Process is a command in the guest.
type Process struct {
	client *Client
	id     uint64
	args   []string
	done   chan struct{} // closed after exitCode and err are set

	mu        sync.Mutex
	stdout    bytes.Buffer
	stderr    bytes.Buffer
	truncated bool
	ended     error // why watch killed the command
	exitCode  int
	err       error
}

// Wait returns when the command has ended. An exit code other than 0 is no
// error. The error matches context.DeadlineExceeded when the command ran out
// of time, and context.Canceled when its context was canceled; the result then
// still holds the output.
func (p *Process) Wait() (Result, error) {
	<-p.done
	return p.result(), p.err
}

// Done is closed when the command has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Output returns what the command has written so far. Programs of C usually
// write to a pipe only when they end or flush.
func (p *Process) Output() (stdout, stderr string) {
	r := p.result()
	return r.Stdout, r.Stderr
}

// Kill sends SIGKILL to the command's process group. Wait then returns exit code 137.
// Kill does nothing if the command has ended.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return nil
	default:
		return p.client.send(request{ID: p.id, Kill: true})
	}
}

func (p *Process) result() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Result{
		Stdout:    p.stdout.String(),
		Stderr:    p.stderr.String(),
		Truncated: p.truncated,
		ExitCode:  p.exitCode,
	}
}

// watch kills the command when ctx ends, and closes the stream if the guest does
// not confirm that.
func (p *Process) watch(ctx context.Context) {
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.ended = ctx.Err()
	p.mu.Unlock()
	if p.Kill() != nil {
		return
	}
	select {
	case <-p.done:
	case <-time.After(p.client.killGrace):
		_ = p.client.fail(fmt.Errorf("guest hangs: %q outlived its kill by %v", p.args, p.client.killGrace))
	}
}

// take adds a reply's output, or ends the command if it is the last reply.
func (p *Process) take(r reply) {
	p.mu.Lock()
	p.keep(&p.stdout, r.Stdout)
	p.keep(&p.stderr, r.Stderr)
	ended := p.ended
	p.mu.Unlock()
	switch {
	case !r.Done:
	case r.Error != "":
		p.finish(0, fmt.Errorf("start %q: %s", p.args, r.Error))
	case r.TimedOut:
		p.finish(r.ExitCode, fmt.Errorf("%q ended: %w", p.args, context.DeadlineExceeded))
	case ended != nil && r.ExitCode == exitKilled:
		p.finish(r.ExitCode, fmt.Errorf("%q ended: %w", p.args, ended))
	default:
		p.finish(r.ExitCode, nil)
	}
}

// keep appends the data that fits within MaxOutput.
func (p *Process) keep(buffer *bytes.Buffer, data []byte) {
	if room := MaxOutput - buffer.Len(); len(data) > room {
		data = data[:room]
		p.truncated = true
	}
	buffer.Write(data)
}

// finish is called once, by the function that has removed the command from the
// client's table.
func (p *Process) finish(exitCode int, err error) {
	p.mu.Lock()
	p.exitCode, p.err = exitCode, err
	p.mu.Unlock()
	close(p.done)
}
