package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
)

// roleEnv is the environment variable that makes this program a child in the named role.
const roleEnv = "GOROCE_DAEMON_TEST_ROLE"

// roles are the functions of children by name. Parent and child exchange JSON.
var roles = map[string]func(c *parent){
	"flood":   flood,
	"greedy":  greedy,
	"hostile": hostile,
	"spin":    spin,
	"stuck":   stuck,
}

// job is the first message to a child.
type job struct {
	Socket  string // of its daemon
	Seed    uint64
	QPs     int
	Window  int // outstanding requests on each QP
	SRQ     bool
	Process bool // use memory that is no memfd
	Patient bool // requesters use the timing steadily

	Nobody bool     // hostile: become another user first
	Attack string   // hostile: name of the attack
	Rounds int      // hostile: how many rounds; 0 means until it is killed
	Want   []string // hostile: keys of report.Counts that must not be 0; the rounds are repeated for them
}

func (j *job) timing() timing {
	if j.Patient {
		return steadily
	}
	return soon
}

// card is the connection data that the two ends exchange.
type card struct {
	GID  ib.GID
	QPNs []ib.QPN
	Addr uint64
	Key  ib.Key
	Len  int
}

// parent is a child's view of the test: the pipes to it and its job.
type parent struct {
	job
	in  *json.Decoder
	out *json.Encoder
}

// must panics if err is not nil, which ends the child, or the test program.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (c *parent) tell(v any) { must(c.out.Encode(v)) }
func (c *parent) hear(v any) { must(c.in.Decode(v)) }

// runChild is a child's main.
func runChild(role string) {
	c := &parent{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}
	run := roles[role]
	if run == nil {
		panic(fmt.Sprintf("no role %q", role))
	}
	c.hear(&c.job)
	run(c)
}

// child is the test's view of a child process.
type child struct {
	testing.TB
	cmd *exec.Cmd
	pid int
	in  *json.Encoder
	out *json.Decoder
}

func startChild(t testing.TB, role string, j job) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{TB: t, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = json.NewEncoder(in), json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.pid = c.cmd.Process.Pid
	t.Cleanup(c.kill)
	c.tell(j)
	return c
}

func (c *child) tell(v any) {
	c.Helper()
	if err := c.in.Encode(v); err != nil {
		c.Fatalf("tell the child: %v", err)
	}
}

// hear waits for a message of the child. A child that hangs is killed.
func (c *child) hear(v any) {
	c.Helper()
	defer time.AfterFunc(4*patience, func() { _ = c.cmd.Process.Kill() }).Stop()
	if err := c.out.Decode(v); err != nil {
		c.Fatalf("the child says nothing: %v", err)
	}
}

// standBack gives all threads of the child the lowest priority. (For
// setpriority(2) a process is one thread, and a group all threads of its processes.)
func (c *child) standBack() {
	c.Helper()
	if err := unix.Setpriority(unix.PRIO_PGRP, c.pid, 19); err != nil {
		c.Fatal(err)
	}
}

// kill sends SIGKILL to the child, and waits for its end.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
