package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// usersLimit bounds each process of TestDaemonUsers. The daemons run as long as all others together.
const usersLimit = 20 * time.Minute

// The users of TestDaemonUsers, who need no names, and the group of those who may.
const (
	uidDaemon1, uidDaemon2 = 61001, 61002
	uidAlice, uidBob       = 61003, 61004
	uidEve                 = 61005
	gidRDMA                = 61000
)

// users are the programs that the test runs, where all users can run them.
type users struct {
	*testing.T
	goroced, conformance string
}

// machine is a namespace with a daemon.
type machine struct {
	*linktest.Namespace
	socket, admin string
}

// TestDaemonUsers: two machines with a daemon each, which runs as a user of its own.
// Alice and Bob are clients of both, and each one's clients meet the other's: all cases, a third of them in a plain
// run, both pairs at a time, over IPv4 and IPv6, which keeps their multicast groups apart.
// Bob's on the first machine registers the memory of his process, which that daemon may
// reach; all others have memfds. Eve may not use the daemons.
func TestDaemonUsers(t *testing.T) {
	t.Parallel()
	a, b := linktest.NewVeth(t, 1500)
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u := &users{t, filepath.Join(dir, "goroced"), filepath.Join(dir, "conformance")}
	u.build(u.goroced, "../../cmd/goroced")
	u.build(u.conformance, "./cmd/conformance")

	here := u.machine(a, dir, "here", uidDaemon1, 0o755, "--set", "memory.other_processes=true")
	there := u.machine(b, dir, "there", uidDaemon2, 0o750)
	t.Run("refusals", func(t *testing.T) { u.with(t).refusals(here, there) })
	t.Run("keys", func(t *testing.T) { u.with(t).keys(here) })
	t.Run("process memory", func(t *testing.T) { u.with(t).processMemory(here, there) })
	t.Run("memory of a capable process", func(t *testing.T) { u.with(t).capableProcess(there) })
	for _, p := range []struct {
		name          string
		leads, serves user
	}{
		{"alice here, bob there", user{here, uidAlice, a.Addr4, "memfd"}, user{there, uidBob, b.Addr4, "memfd"}},
		{"bob here, with memory of his process, alice there", user{here, uidBob, a.Addr6, "process"},
			user{there, uidAlice, b.Addr6, "memfd"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			u := u.with(t)
			u.leads(p.leads, u.serves(p.serves))
		})
	}
}

// with is u in a subtest.
func (u *users) with(t *testing.T) *users { return &users{t, u.goroced, u.conformance} }

// build compiles a program.
func (u *users) build(path, pkg string) {
	u.Helper()
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		u.Fatalf("go build: %v\n%s", err, out)
	}
}

// command returns a command that runs as that user, who is in group gidRDMA unless it is Eve.
func (u *users) command(uid int, program string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), usersLimit)
	u.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH")}, "/"
	who := &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	if uid != uidEve {
		who.Groups = []uint32{gidRDMA}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	return cmd
}

// machine starts a daemon and waits until it serves.
func (u *users) machine(n *linktest.Namespace, dir, name string, uid int, mode os.FileMode, flags ...string) *machine {
	u.Helper()
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, mode); err != nil {
		u.Fatal(err)
	}
	if err := os.Chown(dir, uid, gidRDMA); err != nil {
		u.Fatal(err)
	}
	m := &machine{n, filepath.Join(dir, "s"), filepath.Join(dir, "a")}
	args := append([]string{"serve", "--link", "udp", "--netif", n.IfName, "--socket", m.socket, "--admin", m.admin,
		"--set", "socket_mode=0660", "--set", "socket_group=" + strconv.Itoa(gidRDMA)}, flags...)
	cmd := u.command(uid, u.goroced, args...)
	log := u.begin(n, cmd, &cmd.Stderr, func(line string) bool { return strings.Contains(line, "msg=ready") })
	u.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || u.Failed() {
			u.Errorf("the daemon %s, told to end: %v\n%s", name, err, log)
		}
	})
	return m
}

// text is what a process has printed so far.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.WriteString(line)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// begin starts a process in a namespace and waits for a line of what it prints, which is
// collected.
func (u *users) begin(n *linktest.Namespace, cmd *exec.Cmd, prints *io.Writer, until func(string) bool) *text {
	u.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		u.Fatal(err)
	}
	*prints = w
	err = n.Do(cmd.Start)
	_ = w.Close()
	if err != nil {
		u.Fatal(err)
	}
	said, found := &text{}, make(chan bool, 1)
	go func() {
		defer r.Close()
		lines := bufio.NewReader(r)
		for seen := false; ; {
			line, err := lines.ReadString('\n')
			said.add(line)
			if !seen && (until(line) || err != nil) {
				seen = true
				found <- err == nil
			}
			if err != nil {
				return
			}
		}
	}()
	if !<-found {
		u.Fatalf("%s %s: %v\n%s", filepath.Base(cmd.Path), cmd.Args[1], cmd.Wait(), said)
	}
	return said
}

// user is a process that uses a daemon.
type user struct {
	*machine
	uid    int
	gid    netip.Addr
	memory string
}

// client makes the command that plays one half.
func (u *users) client(c user, args ...string) *exec.Cmd {
	return u.command(c.uid, u.conformance, append(args, "-device", "daemon:"+c.socket, "-gid", c.gid.String(),
		"-memory", c.memory)...)
}

// serves starts a client that plays the other half, and returns where it listens.
func (u *users) serves(c user) (peer string) {
	u.Helper()
	cmd := u.client(c, "serve", "-listen", netip.AddrPortFrom(c.Addr4, 0).String())
	cmd.Stderr = u.Output()
	u.begin(c.Namespace, cmd, &cmd.Stdout, func(line string) (found bool) {
		_, peer, found = strings.Cut(strings.TrimSpace(line), " serves on ")
		return found
	})
	u.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			u.Errorf("the client of user %d that serves, told to end: %v", c.uid, err)
		}
	})
	return peer
}

// leads plays all cases with the client that listens at peer.
func (u *users) leads(c user, peer string) {
	u.Helper()
	opts := Options{Cases: os.Getenv("GOROCE_CASES"), Part: Part{0, 1}}
	if opts.Cases == "" {
		opts.Part.Of = require.Rounds(3, 1)
	}
	cmd := u.client(c, "run", "-json", "-case", opts.Cases, "-part", fmt.Sprintf("0/%d", opts.Part.Of), "-peer", peer)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := c.Do(cmd.Run)
	plan := (&Leader{opts: opts}).Plan()
	outcomes, malformed := ReadOutcomes(stdout.Bytes())
	for _, o := range outcomes {
		u.Run(o.Name, func(t *testing.T) {
			switch {
			case o.Err != "":
				t.Errorf("after %d ms: %s", o.Millis, o.Err)
			case o.Skip != "":
				t.Skip("skipped: " + o.Skip)
			case o.Note != "":
				t.Log(o.Note)
			}
		})
	}
	if n := len(outcomes); err != nil || malformed != nil || n != len(plan) {
		u.Errorf("after %d of %d items: %v, %v\n%s", n, len(plan), err, malformed, stderr.Bytes())
	}
}

// run runs a program to its end.
func (u *users) run(m *machine, uid int, program string, args ...string) (code int, stdout, stderr string) {
	u.Helper()
	cmd := u.command(uid, program, args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failed := m.Do(cmd.Run)
	if cmd.ProcessState == nil {
		u.Fatal(failed)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// refusals: an operation that a user has no right to fails with one line, which says who has
// the right. Eve may enter one daemon's directory but not use its socket, and may not enter
// the other's directory. Alice may not use TCP ports below 1024.
func (u *users) refusals(here, there *machine) {
	alice := "for user " + strconv.Itoa(uidAlice)
	for _, c := range []struct {
		uid   int
		on    *machine
		tool  string
		wants []string
	}{
		{uidEve, here, "devinfo", []string{here.socket, "may not connect", "mode 0660",
			"group " + strconv.Itoa(gidRDMA), "join its group"}},
		{uidEve, there, "devinfo", []string{there.socket, "may not connect", "socket_group"}},
		{uidAlice, here, "rping -s -p 80", []string{"80 of TCP", "1024 and above " + alice,
			"root and the daemon's own user"}},
	} {
		args := append(strings.Fields(c.tool), "--daemon", "--socket", c.on.socket)
		code, stdout, stderr := u.run(c.on, c.uid, u.goroced, args...)
		if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			u.Errorf("%s of user %d: exit code %d, want 1 and one line:\n%s%s", c.tool, c.uid, code, stdout, stderr)
		}
		for _, want := range c.wants {
			if !strings.Contains(stderr, want) {
				u.Errorf("%s of user %d: %q does not say %q", c.tool, c.uid, stderr, want)
			}
		}
	}
}

// keys: what Alice has registered Bob sees, but not the keys, which the daemon's own user
// sees too.
func (u *users) keys(m *machine) {
	cmd := u.command(uidAlice, u.goroced, "pingpong", "-p", "18599", "--socket", m.socket)
	u.begin(m.Namespace, cmd, &cmd.Stderr, func(line string) bool {
		return strings.Contains(line, "waiting for a client")
	})
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for uid, want := range map[int]bool{uidBob: false, uidDaemon1: true} {
		code, stdout, stderr := u.run(m, uid, u.goroced, "mr", "--admin", m.admin)
		if code != 0 || !strings.Contains(stdout, "pid "+strconv.Itoa(cmd.Process.Pid)) ||
			strings.Contains(stdout, "rkey") != want {
			u.Errorf("user %d, for whom keys are %v, sees with exit code %d\n%s%s", uid, want, code, stdout, stderr)
		}
	}
}

// processMemory: the daemon refuses to register memory of a process that it may not access,
// and says what would help. One daemon may not access memory of Alice's processes at all.
// Neither may access a process whose program its user cannot read: the kernel then refuses
// /proc/PID/mem to the process itself, and to a daemon of the same user.
func (u *users) processMemory(here, there *machine) {
	hidden := u.conformance + "-hidden"
	if out, err := exec.Command("install", "-m", "0711", u.conformance, hidden).CombinedOutput(); err != nil {
		u.Fatalf("%v\n%s", err, out)
	}
	peer := u.serves(user{there, uidBob, there.Addr4, "memfd"})
	for _, c := range []struct {
		on            *machine
		uid           int
		program, says string
	}{
		{there, uidAlice, u.conformance, "see memory.own_processes and memory.other_processes"},
		{there, uidDaemon2, hidden, "kernel.yama.ptrace_scope=0"},
		{here, uidAlice, hidden, "the client sends no descriptor of its /proc/self/mem"},
	} {
		code, stdout, stderr := u.run(c.on, c.uid, c.program, "run", "-case", "send/size/1", "-peer", peer,
			"-device", "daemon:"+c.on.socket, "-gid", c.on.Addr4.String(), "-memory", "process")
		if code != 1 || !strings.Contains(stdout, "register memory: ") ||
			!strings.Contains(stdout, "permission denied") || !strings.Contains(stdout, c.says) {
			u.Errorf("user %d: exit code %d, want 1 and words that say %q:\n%s%s", c.uid, code, c.says, stdout, stderr)
		}
	}
}

// capableProcess: the daemon may not ptrace a process of its own user that has a capability
// which the daemon lacks, and with kernel.yama.ptrace_scope=1 none but its children. It uses
// the descriptor of /proc/self/mem that the client sends.
func (u *users) capableProcess(m *machine) {
	peer := u.serves(user{m, uidBob, m.Addr4, "memfd"})
	cmd := u.client(user{m, uidDaemon2, m.Addr4, "process"}, "run", "-case", "send/size/1", "-peer", peer)
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_RAW}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := m.Do(cmd.Run); err != nil {
		u.Errorf("%v\n%s", err, out.String())
	}
}
