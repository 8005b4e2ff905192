package perf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/roce/daemon/dropin"
)

// dropinEnd is an end at which programs in C run over the daemon, by the libraries of package dropin.
type dropinEnd struct {
	*Job
	tool tool
	p    *peer
	env  []string
}

// cost is what runs of a program have taken.
type cost struct {
	CPU   time.Duration // of the program and its daemon
	Calls int           // system calls of the program, if they are counted
}

func (c cost) plus(d cost) cost  { return cost{c.CPU + d.CPU, c.Calls + d.Calls} }
func (c cost) minus(d cost) cost { return cost{c.CPU - d.CPU, c.Calls - d.Calls} }

// openDropin starts the daemon of an end, and finds or builds the libraries.
func openDropin(j *Job, p *peer) (_ *dropinEnd, err error) {
	e := &dropinEnd{Job: j, tool: tools[j.Tool], p: p}
	if err := e.programs(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.timeout())
	defer cancel()
	libs, err := dropin.Libraries(ctx)
	if errors.Is(err, dropin.ErrNoCompiler) {
		return nil, &SkipError{err.Error()}
	}
	if err != nil {
		return nil, err
	}
	if j.daemon, err = startDaemon(j); err != nil {
		e.close()
		return nil, err
	}
	e.env = append(os.Environ(), "GOROCED_SOCKET="+j.daemon.socket(), "LD_LIBRARY_PATH="+libs,
		"LD_PRELOAD="+filepath.Join(libs, dropin.Sys)) // what `goroced run` sets
	if j.Memory == processMemory {
		e.env = append(e.env, "GOROCE_MR=process")
	}
	return e, nil
}

// programs skips the row if a program is missing.
func (e *dropinEnd) programs() error {
	names := map[string]string{e.Tool: "perftest"}
	if e.Trace {
		names["strace"] = "strace"
	}
	for name, deb := range names {
		if _, err := exec.LookPath(name); err != nil {
			return &SkipError{fmt.Sprintf("program %s of package %s is not on the PATH", name, deb)}
		}
	}
	return nil
}

func (e *dropinEnd) close() {
	if e.daemon != nil {
		e.daemon.stop()
	}
}

// memfdSize has room for what ib_write_bw registers with messages of 64 KiB.
const memfdSize = 1 << 20

// newMemfd makes a memfd that cannot shrink.
func newMemfd(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("perf", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "memfd")
	err = file.Truncate(size)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// givesWay are the system calls by which a program that finds nothing gives its processor away.
const givesWay = "sched_yield,nanosleep,clock_nanosleep"

// command returns the program's command, as strace's if system calls are counted, but for those of givesWay. Without
// seccomp, strace would stop the program for these, too. The program maps memory to register it, if it is not nil.
func (e *dropinEnd) command(port, messages int, memory *os.File) *exec.Cmd {
	args := append([]string{e.Tool, "-F", "-x", "0", "-p", strconv.Itoa(port), "-s", strconv.Itoa(e.Size)},
		e.tool.options...)
	if messages > 0 {
		args = append(args, "-n", strconv.Itoa(messages))
	} else { // whole seconds, with no time at either end that does not count
		args = append(args, "-D", strconv.Itoa(int(math.Ceil(e.Duration.Seconds()))), "-f", "0")
	}
	if memory != nil {
		args = append(args, "--mmap", "/proc/self/fd/3")
	}
	if !e.Far {
		args = append(args, e.Peer.String())
	}
	if e.Trace { // with -D strace is no parent of the program, so that it ends as without strace
		args = append([]string{"strace", "-D", "-f", "-c", "-U", "calls", "--seccomp-bpf", "-e",
			"trace=!" + givesWay}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = e.env
	if memory != nil {
		cmd.ExtraFiles = []*os.File{memory}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs the program at both ends. The near end returns what its program has printed, and the cost of both.
func (e *dropinEnd) run(messages int) (string, cost, error) {
	runtime.LockOSThread() // Pdeathsig is about the thread that has started the program
	defer runtime.UnlockOSThread()
	port := 0
	var err error
	if e.Far {
		port, err = freePort()
	} else {
		port, err = swap(e.p, 0) // the far program listens
	}
	if err != nil {
		return "", cost{}, err
	}
	var memory *os.File // of this run alone: the daemon seals it, so that no other program can map it
	if e.Memory == memfd {
		if memory, err = newMemfd(memfdSize); err != nil {
			return "", cost{}, err
		}
		defer memory.Close()
	}
	var out, errs strings.Builder
	cmd := e.command(port, messages, memory)
	cmd.Stdout, cmd.Stderr = &out, &errs
	before := e.daemon.cpu()
	if err = cmd.Start(); err != nil {
		return "", cost{}, err
	}
	if e.Far {
		err = e.listening(cmd.Process.Pid, port)
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return "", cost{}, fmt.Errorf("%s: %w: %s%s", e.Tool, err, &out, &errs)
	}
	used := cost{CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() + e.daemon.cpu() - before}
	if e.Trace {
		if used.Calls, err = straceCalls(errs.String()); err != nil {
			return "", cost{}, err
		}
	}
	theirs, err := swap(e.p, used)
	return out.String(), used.plus(theirs), err
}

// freePort returns a TCP port that nobody listens on. It is below the kernel's range of ephemeral ports, so that no
// connection takes it before the program listens.
func freePort() (port int, err error) {
	for range 1000 {
		port = 10000 + rand.IntN(22000)
		var l net.Listener
		if l, err = net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no TCP port from 10000 to 31999 is free: %w", err)
}

// listening waits until the program listens on a port, and tells the near end. The program is in the network namespace
// of this thread, which need not be that of the process's first thread, as /proc/net is.
func (e *dropinEnd) listening(pid, port int) error {
	for end := time.Now().Add(e.timeout()); ; time.Sleep(2 * time.Millisecond) {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			if table, _ := os.ReadFile(file); listens(string(table), port) {
				_, err := swap(e.p, port)
				return err
			}
		}
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
			return os.NewSyscallError("waitid", err)
		}
		if info.Signo != 0 || time.Now().After(end) {
			return fmt.Errorf("it does not listen on port %d", port)
		}
	}
}

// listens reports whether a table of /proc/net has a socket that listens on a port.
func listens(table string, port int) bool {
	const listening = "0A" // TCP_LISTEN
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listening {
			return true
		}
	}
	return false
}

// dropinRun is both halves of a run of a program. The near one has the result that its program prints.
func dropinRun(j *Job, p *peer) (Result, error) {
	e, err := openDropin(j, p)
	if err != nil {
		return Result{}, err
	}
	defer e.close()
	out, _, err := e.run(j.Messages)
	if err != nil || j.Far {
		return Result{}, err
	}
	return e.tool.parse(out, j)
}

// dropinCost is both halves of two runs, the second of which has twice as many messages. What it takes more is the cost
// of Messages messages without that of the program's start and end.
func dropinCost(j *Job, p *peer) (Result, error) {
	e, err := openDropin(j, p)
	if err != nil {
		return Result{}, err
	}
	defer e.close()
	_, once, err := e.run(j.Messages)
	if err != nil {
		return Result{}, err
	}
	out, twice, err := e.run(2 * j.Messages)
	if err != nil || j.Far {
		return Result{}, err
	}
	r, err := e.tool.parse(out, j)
	more := twice.minus(once)
	r.Messages /= 2
	r.Seconds, r.Bytes, r.Packets = r.Seconds/2, r.Bytes/2, r.Packets/2
	r.CPU, r.Calls = more.CPU.Seconds(), float64(more.Calls)
	return r, err
}
