//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ground is where a row is played: one host or two, each with its daemon.
type ground struct {
	*bench
	dir     string
	hosts   []*host // the server's, the client's; with one daemon it is twice the same
	root    bool
	running []*process
}

// host is a machine with a daemon on it: this one, or a network namespace.
type host struct {
	addr, addr6 string
	device      string
	socket      string
	admin       string
	enter       []string // the command by which others get there
	pid         int      // of a process that is there
	libs        string
}

// network makes two network namespaces, of the processes $1 and $2, that are joined by a cable.
const network = `set -e
in_a="nsenter -t $1 -n" in_b="nsenter -t $2 -n"
$in_a ip link add eth0 mtu 1500 type veth peer name eth0 mtu 1500 netns $2
$in_a ip addr add 10.99.0.1/24 dev eth0
$in_b ip addr add 10.99.0.2/24 dev eth0
$in_a ip addr add fd99::1/64 dev eth0 nodad
$in_b ip addr add fd99::2/64 dev eth0 nodad
for in in "$in_a" "$in_b"; do $in ip link set lo up; $in ip link set eth0 up; done
for in in "$in_a" "$in_b"; do until $in ip link show eth0 | grep -q "state UP"; do sleep 0.01; done; done`

// nobody is the ordinary user that programs are, if this is root.
const nobody = "65534"

// open makes the hosts of a place, and starts their daemons.
func (b *bench) open(ctx context.Context, r *row, where place) (_ *ground, err error) {
	g := &ground{bench: b, root: r.root}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.dir, err = os.MkdirTemp(b.dir, "row"); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		loopback := fmt.Sprintf("127.%d.%d.%d", 64+rand.N(64), rand.N(255), 1+rand.N(254))
		h := &host{addr: loopback, device: "goroce_lo", libs: b.libs, pid: os.Getpid()}
		g.hosts = []*host{h, h}
		return g, g.serve(ctx, h)
	}
	if err := os.Chown(g.dir, 65534, 65534); err != nil {
		return nil, err
	}
	var pids []int
	for range 2 { // a namespace is there as long as a process in it, which ends with this one, as it reads from it
		keeper := exec.Command("unshare", "--net", "sh", "-c", "echo; read line")
		input, err := keeper.StdinPipe()
		if err != nil {
			return nil, err
		}
		p, err := g.start(keeper)
		if err != nil {
			return nil, err
		}
		p.input = input
		if err := p.await(ctx, "it is in its namespace", func() bool { return p.out.String() != "" }); err != nil {
			return nil, err
		}
		pids = append(pids, p.cmd.Process.Pid)
	}
	if out, err := exec.CommandContext(ctx, "sh", "-c", network, "network", strconv.Itoa(pids[0]),
		strconv.Itoa(pids[1])).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make the network: %w\n%s", err, out)
	}
	for i, pid := range pids {
		g.hosts = append(g.hosts, &host{addr: fmt.Sprintf("10.99.0.%d", i+1), addr6: fmt.Sprintf("fd99::%d", i+1),
			device: "blue", enter: []string{"nsenter", "-t", strconv.Itoa(pid), "-n"}, pid: pid, libs: b.libs})
	}
	if where == oneHost {
		g.hosts[1] = g.hosts[0]
		return g, g.serve(ctx, g.hosts[0])
	}
	return g, errors.Join(g.serve(ctx, g.hosts[0]), g.serve(ctx, g.hosts[1]))
}

// serve starts a daemon on a host.
func (g *ground) serve(ctx context.Context, h *host) error {
	h.socket, h.admin = filepath.Join(g.dir, h.addr), filepath.Join(g.dir, h.addr+".admin")
	addrs := h.addr
	if h.addr6 != "" {
		addrs += "," + h.addr6
	}
	p, err := g.start(g.command(h, g.goroced, "serve", "--socket", h.socket, "--admin", h.admin, "--addr", addrs,
		"--set", "device.name="+h.device, "--set", "drain=0s", "--idle-exit", "10m"))
	if err != nil {
		return err
	}
	return p.await(ctx, "the daemon is ready", func() bool { return strings.Contains(p.out.String(), "msg=ready") })
}

// command returns a command on a host, of the ordinary user or root.
func (g *ground) command(h *host, args ...string) *exec.Cmd {
	words := slices.Clone(h.enter)
	if os.Geteuid() == 0 && !g.root {
		words = append(words, "setpriv", "--reuid="+nobody, "--regid="+nobody, "--clear-groups")
	}
	words = append(words, args...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = g.dir
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "GOROCE") && !strings.HasPrefix(name, "LD_") && !strings.HasPrefix(name, "XDG_") &&
			name != "HOME" && name != "TMPDIR" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+g.dir, "TMPDIR="+g.dir, "GOROCE_LIB="+h.libs, "OMPI_ALLOW_RUN_AS_ROOT=1",
		"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return cmd
}

// close ends what runs, the programs before the daemons.
func (g *ground) close() {
	for _, p := range slices.Backward(g.running) {
		p.kill()
	}
	_ = os.RemoveAll(g.dir)
}

// process is a program that runs, with its children a process group, or has run.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
	out   output
	done  chan struct{}
	err   error // once done is closed
}

// output is what a program has written so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// most is the output that is kept of a program.
const most = 1 << 20

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(b[:min(len(b), max(0, most-o.buf.Len()))])
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (g *ground) start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // for what a child of it holds open
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.running = append(g.running, p)
	go func() {
		if p.err = cmd.Wait(); errors.Is(p.err, exec.ErrWaitDelay) {
			p.err = nil
		}
		close(p.done)
	}()
	return p, nil
}

// kill ends the process and its children, if it still runs.
func (p *process) kill() {
	if p.input != nil {
		_ = p.input.Close()
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// await waits until something is so, while the process runs.
func (p *process) await(ctx context.Context, what string, holds func() bool) error {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-p.done:
			return fmt.Errorf("%s has ended before %s: %v\n%s", p.cmd.Args[0], what, p.err, p.out.String())
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s\n%s", what, p.out.String())
		case <-look.C:
		}
	}
	return nil
}

// view asks a daemon's admin socket for a list.
func (h *host) view(ctx context.Context, path string) (list []struct {
	State string `json:"state"`
}, err error) {
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.admin)
		}}}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://goroced/v1/"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := web.Do(ask)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return list, json.NewDecoder(answer.Body).Decode(&list)
}

// idle reports whether the host's daemon has neither IDs nor queue pairs nor memory of programs.
func (h *host) idle(ctx context.Context) bool {
	for _, path := range []string{"cm", "qps", "mrs"} {
		if list, err := h.view(ctx, path); err != nil || len(list) > 0 {
			return false
		}
	}
	return true
}
