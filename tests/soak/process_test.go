package soak

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/linktest"
)

// process is a program that runs on a host.
type process struct {
	cmd  *exec.Cmd
	out  output // what it writes, if nobody else takes it
	pid  int
	done chan struct{}
	err  error // once done is closed
}

// output keeps the end of what a program writes.
type output struct {
	mu  sync.Mutex
	buf []byte
}

// outputMost is how much of it is kept.
const outputMost = 64 << 10

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	if len(o.buf) > 2*outputMost {
		o.buf = bytes.Clone(o.buf[len(o.buf)-outputMost:])
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf)
}

// start starts a program in a namespace. It is killed when this process ends, and at the end of the test.
func start(t testing.TB, in *linktest.Namespace, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.out
	}
	cmd.Stderr = &p.out
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second // for what a child of it holds open
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		err := in.Do(func() error {
			// Pdeathsig is sent when the thread that has started the process ends. This one ends after the process.
			runtime.LockOSThread()
			err := cmd.Start()
			started <- err
			if err == nil {
				p.err = cmd.Wait()
				close(p.done)
			}
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	p.pid = cmd.Process.Pid
	t.Cleanup(p.kill)
	return p
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// within waits for the end of the process.
func (p *process) within(d time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(d):
		return false
	}
}

// proc returns the path of a file of the process.
func (p *process) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", p.pid, name) }
