package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// pipeDelay is how long a command's pipes may stay open after it ended: a child
// that it left behind may hold them.
const pipeDelay = time.Second

// Serve runs the commands that arrive on port until port fails. Each command
// gets a process group of its own, and what is left of the group when the
// command ends is killed.
func Serve(port io.ReadWriter) error {
	s := &server{encoder: json.NewEncoder(port), cancel: make(map[uint64]context.CancelFunc)}
	s.send(reply{ID: readyID, Done: true})
	decoder := json.NewDecoder(port)
	for {
		var r request
		if err := decoder.Decode(&r); err != nil {
			return fmt.Errorf("control: read request: %w", err)
		}
		if r.Kill {
			s.kill(r.ID)
			continue
		}
		ctx := s.admit(r)
		go s.run(ctx, r)
	}
}

type server struct {
	mu      sync.Mutex
	encoder *json.Encoder
	cancel  map[uint64]context.CancelFunc // by command ID
}

// send writes one message. It ignores errors: the read side of the same stream
// fails too and ends Serve.
func (s *server) send(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.encoder.Encode(r)
}

// admit enters the command in the table before the next request is read, so
// that a kill always finds it.
func (s *server) admit(r request) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel[r.ID] = cancel
	return ctx
}

func (s *server) kill(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.cancel[id]; cancel != nil {
		cancel()
	}
}

func (s *server) run(ctx context.Context, r request) {
	done := execute(ctx, r, s.send)
	s.kill(r.ID) // releases the context's timer
	s.mu.Lock()
	delete(s.cancel, r.ID)
	s.mu.Unlock()
	s.send(done)
}

// execute runs the command, sends its output, and returns its last reply.
func execute(ctx context.Context, r request, send func(reply)) reply {
	done := reply{ID: r.ID, Done: true}
	if len(r.Args) == 0 {
		done.Error = "no command given"
		return done
	}
	cmd := exec.CommandContext(ctx, r.Args[0], r.Args[1:]...)
	cmd.Stdin = bytes.NewReader(r.Stdin)
	cmd.Stdout = chunkWriter(func(b []byte) { send(reply{ID: r.ID, Stdout: b}) })
	cmd.Stderr = chunkWriter(func(b []byte) { send(reply{ID: r.ID, Stderr: b}) })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeDelay
	switch err := cmd.Start(); {
	case err == nil:
		_ = cmd.Wait() // ProcessState has more information than the error
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		done.ExitCode = exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus))
	case ctx.Err() != nil:
		done.ExitCode = exitKilled // killed before it began
	default:
		done.Error = err.Error()
	}
	done.TimedOut = errors.Is(ctx.Err(), context.DeadlineExceeded) && done.ExitCode == exitKilled
	return done
}

// exitKilled is the exit code of a command ended by SIGKILL.
const exitKilled = 128 + int(syscall.SIGKILL)

// exitCode follows the shells: 128 + n for a command that signal n ended.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// chunkWriter calls the function with the data of each Write.
type chunkWriter func([]byte)

func (w chunkWriter) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
