package conformance

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/goroce/goroce/roce/link/linktest"
)

// usersLimit bounds each process of TestDaemonUsers.
const usersLimit = 3 * time.Minute

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
	socket string
}

// TestDaemonUsers: two machines with a daemon each, which runs as a user of its own.
// Alice and Bob are clients of both, and each one's clients meet the other's: all cases,
// both pairs at a time, over IPv4 and IPv6, which keeps their multicast groups apart.
// Bob's on the first machine registers the memory of his process, which that daemon may
// touch; all others have memfds. Eve may not use the daemons.
func TestDaemonUsers(t *testing.T) {
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

	here := u.machine(a, dir, "here", uidDaemon1, 0o755, []string{"--set", "memory.other_processes=true"}, unix.CAP_SYS_PTRACE)
	there := u.machine(b, dir, "there", uidDaemon2, 0o750, nil)
	t.Run("eve", func(t *testing.T) {
		u := &users{t, u.goroced, u.conformance}
		u.refused("may enter the directory, not use the socket", here, "mode 0660, ", "group "+strconv.Itoa(gidRDMA))
		u.refused("may not enter the directory", there)
	})
	for _, p := range []struct {
		name          string
		leads, serves user
	}{
		{"alice here, bob there", user{here, uidAlice, a.Addr4, "memfd"}, user{there, uidBob, b.Addr4, "memfd"}},
		{"bob here, with memory of his process, alice there", user{here, uidBob, a.Addr6, "process"}, user{there, uidAlice, b.Addr6, "memfd"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			u := &users{t, u.goroced, u.conformance}
			u.leads(p.leads, u.serves(p.serves))
		})
	}
}

// build compiles a program.
func (u *users) build(path, pkg string) {
	u.Helper()
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		u.Fatalf("go build: %v\n%s", err, out)
	}
}

// command is a program in a namespace, as a user of the group, if it is not Eve.
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
func (u *users) machine(n *linktest.Namespace, dir, name string, uid int, mode os.FileMode, flags []string, caps ...uintptr) *machine {
	u.Helper()
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, mode); err != nil {
		u.Fatal(err)
	}
	if err := os.Chown(dir, uid, gidRDMA); err != nil {
		u.Fatal(err)
	}
	m := &machine{n, filepath.Join(dir, "s")}
	args := append([]string{"serve", "--link", "udp", "--netif", n.IfName, "--socket", m.socket, "--admin", filepath.Join(dir, "a"),
		"--set", "socket_mode=0660", "--set", "socket_group=" + strconv.Itoa(gidRDMA)}, flags...)
	cmd := u.command(uid, u.goroced, args...)
	cmd.SysProcAttr.AmbientCaps = caps
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
	return u.command(c.uid, u.conformance, append(args, "-device", "daemon:"+c.socket, "-gid", c.gid.String(), "-memory", c.memory)...)
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
	cmd := u.client(c, leadArgs(peer)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := c.Do(cmd.Run)
	plan := (&Leader{opts: Options{Cases: os.Getenv("GOROCE_CASES")}}).Plan()
	if n := outcomes(u.T, stdout.Bytes()); err != nil || n != len(plan) {
		u.Errorf("after %d of %d items: %v\n%s", n, len(plan), err, stderr.Bytes())
	}
}

// refused checks that a tool tells Eve in one line that she may not, how one may, and
// what else is given.
func (u *users) refused(who string, m *machine, says ...string) {
	u.Helper()
	cmd := u.command(uidEve, u.goroced, "devinfo", "--daemon", "--socket", m.socket)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := m.Do(cmd.Run)
	said := stderr.String()
	if cmd.ProcessState.ExitCode() != 1 || stdout.Len() > 0 || strings.Count(said, "\n") != 1 {
		u.Errorf("who %s: %v, want exit code 1 and one line:\n%s%s", who, err, &stdout, said)
	}
	for _, want := range append(says, m.socket, "may not connect", "membership in the socket's group") {
		if !strings.Contains(said, want) {
			u.Errorf("who %s is told %q, which does not say %q", who, said, want)
		}
	}
}
