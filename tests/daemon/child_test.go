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

// roleEnv makes this program a child, in the role that it names.
const roleEnv = "GOROCE_DAEMON_TEST_ROLE"

// roles is what children can be told to do. Parent and child speak JSON.
var roles = map[string]func(c *parent){
	"flood":   flood,
	"greedy":  greedy,
	"hostile": hostile,
	"spin":    spin,
	"stuck":   stuck,
}

// job is what a child is told first.
type job struct {
	Socket  string // of its daemon
	Seed    uint64
	QPs     int
	Window  int // requests at a time, on each QP
	SRQ     bool
	Process bool // memory that is no memfd
	Patient bool // requesters do not give up soon

	Attack string // hostile: which
	Rounds int    // hostile: how often; 0 until it is killed
}

func (j *job) timing() timing {
	if j.Patient {
		return steadily
	}
	return soon
}

// card is what one end tells the other.
type card struct {
	GID  ib.GID
	QPNs []ib.QPN
	Addr uint64
	Key  ib.Key
	Len  int
}

// parent is what a child sees of the test.
type parent struct {
	job
	in  *json.Decoder
	out *json.Encoder
}

// must ends the child if something fails that should not.
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

// child is one, seen from the test.
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

// hear waits for what the child says. One that hangs is killed.
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

// kill ends the child as SIGKILL does, and is done when it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
