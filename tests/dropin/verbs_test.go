//go:build linux

package dropin

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// sources is the folder of the libibverbs under test; clientSources has what both libraries share.
const (
	sources       = "../../roce/daemon/dropin/verbs"
	clientSources = "../../roce/daemon/dropin/client"
)

// needVerbs ends the test unless libibverbs-dev is installed: tests are compiled with its headers.
func needVerbs(t testing.TB) {
	t.Helper()
	cmd := exec.Command(require.Command(t, "cc"), "-E", "-")
	cmd.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n")
	if cmd.Run() != nil {
		require.Missing(t, "infiniband/verbs.h of package libibverbs-dev is not installed")
	}
}

// TestVerbsStrings: names of values, and rates, are those of the machine's libibverbs.
func TestVerbsStrings(t *testing.T) {
	needVerbs(t)
	program := compile(t, "testdata/verbs_strings.c", "-libverbs")
	says := func(env ...string) string {
		cmd := exec.Command(program)
		cmd.Env = append(clean(), env...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if diff := cmp.Diff(says(), says("LD_LIBRARY_PATH="+libs(t))); diff != "" {
		t.Errorf("libibverbs (-), ours (+):\n%s", diff)
	}
}

func text(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestVerbsProtocol: the library's declarations of the local protocol are those of docs/abi.md.
func TestVerbsProtocol(t *testing.T) {
	header, page := text(t, filepath.Join(clientSources, "goroce.h")), text(t, "../../docs/abi.md")
	n := 0
	for _, block := range regexp.MustCompile("(?s)```c\n(.*?)```").FindAllStringSubmatch(page, -1) {
		n++
		if !strings.Contains(header, strings.TrimSpace(block[1])) {
			t.Errorf("goroce.h has not\n%s", block[1])
		}
	}
	if n < 7 {
		t.Errorf("only %d declarations in docs/abi.md, want at least 7", n)
	}
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([a-z -]+) [^|]*\|[^|]*\|[^|]*\|[^|]*\|$`)
	names := map[string]string{}
	for _, r := range row.FindAllStringSubmatch(page, -1) {
		names[r[1]] = strings.ReplaceAll(r[2], "-", "")
	}
	for _, op := range regexp.MustCompile(`(?m)^\tGOROCE_([A-Z]+)\w* = (\d+),$`).FindAllStringSubmatch(header, -1) {
		if !strings.HasPrefix(names[op[2]], strings.ToLower(op[1])) {
			t.Errorf("request %s is %q, and GOROCE_%s in goroce.h", op[2], names[op[2]], op[1])
		}
	}
}

// rules are the cases of testdata/verbs_rules.c that run to their end by themselves.
var rules = []string{"sizes", "beyond", "arguments", "limits", "memory", "requests", "extended", "binding", "building",
	"channels", "events", "resize", "forked", "xrc", "states", "datagrams", "mistakes", "ignored", "advice", "moved",
	"descriptors"}

// compileVerbs compiles a program of testdata that uses libibverbs.
func compileVerbs(t testing.TB, source string) string {
	t.Helper()
	needVerbs(t)
	return compile(t, source, "-I", sources, "-I", clientSources, filepath.Join(libs(t), "libibverbs.so.1"))
}

// TestVerbsRules: what programs count on.
func TestVerbsRules(t *testing.T) {
	besides(t)
	program := compileVerbs(t, "testdata/verbs_rules.c")
	h := newHost(t, nil)
	for _, name := range rules {
		t.Run(name, func(t *testing.T) { h.run(t, program, name).ok(t) })
	}
}

// TestVerbsReloaded: the daemon changes its limits, and the device stays the same one for programs that list it again.
func TestVerbsReloaded(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_rules.c")
	h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t)}
	file := filepath.Join(h.dir, "config")
	limit := func(cqs int) {
		if err := os.WriteFile(file, fmt.Appendf(nil, "[limits.connection]\ncqs = %d\n", cqs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	limit(7)
	h.startDaemon(t, "--addr", h.addr.String(), "--config", file)
	cmd := exec.Command(program, "reloaded")
	cmd.Env = append(h.env(), "LD_LIBRARY_PATH="+h.libs, "GOROCED_SOCKET="+h.socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := h.launch(t, cmd)
	says := func(of *process, text string) {
		require.Until(t, text, func() bool {
			of.mustRun(t)
			return strings.Contains(of.out.String(), text)
		})
	}
	says(p, "max_cq 7\n")
	limit(5)
	if err := h.daemon.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	says(h.daemon, "msg=reloaded")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := p.ok(t), "max_cq 7\nmax_cq 5\n"; got != want {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
}

// TestVerbsLoaded: a program that loads the library by name finds names by version.
func TestVerbsLoaded(t *testing.T) {
	needVerbs(t)
	program := compile(t, "testdata/verbs_dlopen.c")
	h := newHost(t, nil)
	if out := h.run(t, program).ok(t); !strings.Contains(out, "goroce_") || !strings.Contains(out, "port state 4") {
		t.Errorf("want %q and %q, it says\n%s", "goroce_", "port state 4", out)
	}
}

// sanitizers are builds of the library that look for bugs while programs run, and their options.
var sanitizers = map[string]string{
	"address": "ASAN_OPTIONS=detect_leaks=1", "thread": "TSAN_OPTIONS=die_after_fork=0",
}

// sanitized builds the libraries with a sanitizer. It returns the environment of a program that uses them.
func sanitized(t testing.TB, name string) []string {
	t.Helper()
	dir := filepath.Join(work, name)
	runtime, err := exec.Command(require.Command(t, "cc"), "-print-file-name=lib"+name[:1]+"san.so").Output()
	preload := strings.TrimSpace(string(runtime))
	if err != nil || !filepath.IsAbs(preload) {
		require.Missing(t, "the compiler has no lib%ssan.so", name[:1])
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror",
		"-fvisibility=hidden", "-fsanitize=" + name}
	shared, _ := filepath.Glob(filepath.Join(clientSources, "*.c"))
	files, _ := filepath.Glob(filepath.Join(sources, "*.c"))
	buildOnce(t, dir, "cc", slices.Concat(flags, []string{"-Wl,-soname," + dropin.Verbs,
		"-Wl,--version-script=" + filepath.Join(sources, "libibverbs.map"), "-o", filepath.Join(dir, dropin.Verbs)},
		files, shared)...)
	files, _ = filepath.Glob(filepath.Join(sources, "../sys/*.c"))
	sys := filepath.Join(dir, dropin.Sys)
	buildOnce(t, sys, "cc", slices.Concat(flags, []string{"-o", sys}, files, shared, []string{"-ldl"})...)
	return []string{"LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + preload + " " + sys, sanitizers[name]}
}

// with starts a program over the host's daemon with other libraries.
func (h *host) with(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = slices.Concat(clean(), env, []string{"GOROCED_SOCKET=" + h.socket})
	return h.launch(t, cmd)
}

// TestVerbsSanitized: the rules, with builds that notice wrong accesses, leaks and data races.
func TestVerbsSanitized(t *testing.T) {
	repeats(t, true)
	besides(t)
	program := compileVerbs(t, "testdata/verbs_rules.c")
	h := newHost(t, nil)
	for name := range sanitizers {
		t.Run(name, func(t *testing.T) {
			env := sanitized(t, name)
			for _, rule := range rules {
				if rule == "resize" || rule == "forked" { // they leave objects open; tsan knows no threads of children
					continue
				}
				t.Run(rule, func(t *testing.T) {
					if out := h.with(t, env, program, rule).ok(t); strings.Contains(out, "Sanitizer") {
						t.Error(out)
					}
				})
			}
		})
	}
}

// serve starts a daemon on a host that has none.
func (h *host) serve(t testing.TB) *process {
	t.Helper()
	p := h.start(t, goroced, "serve", "--socket", h.socket, "--admin", filepath.Join(h.dir, "a"), "--addr",
		h.addr.String(), "--set", "drain=0s")
	require.Until(t, "the daemon listens", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(), "msg=ready")
	})
	return p
}

// TestVerbsEnd: the daemon ends, in order or not, and programs learn of it. A new one is found.
func TestVerbsEnd(t *testing.T) {
	besides(t)
	program := compileVerbs(t, "testdata/verbs_rules.c")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			h := &host{addr: linktest.Loopback(), dir: userDir(t), libs: libs(t)}
			h.socket = filepath.Join(h.dir, "s")
			daemon := h.serve(t)
			p := h.with(t, []string{"LD_LIBRARY_PATH=" + h.libs}, program, "end")
			require.Until(t, "the program waits for the end", func() bool {
				p.mustRun(t)
				return strings.Contains(p.out.String(), "ready")
			})
			_, _ = daemon.signal(t, s) // it may say that it was killed
			out := h.with(t, []string{"LD_LIBRARY_PATH=" + h.libs}, program, "arguments")
			if text, err := out.wait(t); err == nil || strings.Count(text, "goroce: ") != 1 ||
				!regexp.MustCompile("(?m)^goroce: no RDMA device: .*start one with `goroced serve`").MatchString(text) {
				t.Errorf("without a daemon: %v, want one line that says to start one\n%s", err, text)
			}
			quiet := []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCE_QUIET=1"}
			if text, _ := h.with(t, quiet, program, "arguments").wait(t); strings.Contains(text, "goroce:") {
				t.Errorf("not quiet:\n%s", text)
			}
			again := h.serve(t)
			p.ok(t)
			_, _ = again.signal(t, syscall.SIGTERM)
		})
	}
}

// TestVerbsIgnored: a program whose XDG_RUNTIME_DIR is not its user's alone is told that no daemon is looked for there.
func TestVerbsIgnored(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_rules.c")
	h := &host{dir: userDir(t), libs: libs(t)}
	for _, mode := range []os.FileMode{0o700, 0o777} {
		if err := os.Chmod(h.dir, mode); err != nil {
			t.Fatal(err)
		}
		out := h.with(t, []string{"LD_LIBRARY_PATH=" + h.libs, "GOROCED_SOCKET=", "XDG_RUNTIME_DIR=" + h.dir}, program,
			"arguments")
		text, err := out.wait(t)
		if told := strings.Contains(text, "XDG_RUNTIME_DIR is ignored"); err == nil || told != (mode == 0o777) {
			t.Errorf("mode %o: %v, a word about the variable is %v, want %v:\n%s", mode, err, told, mode == 0o777, text)
		}
	}
}

// TestVerbsLongPath: a path that no socket can have is told by errno and by what the user has to do.
func TestVerbsLongPath(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_rules.c")
	h := &host{dir: userDir(t), libs: libs(t), socket: "/" + strings.Repeat("x", 107)}
	want := fmt.Sprintf("goroce: GOROCED_SOCKET is longer than 107 bytes, the most that the path of a socket may "+
		"have; name a shorter path\nerrno %d\n", syscall.ENAMETOOLONG)
	if out := h.with(t, []string{"LD_LIBRARY_PATH=" + h.libs}, program, "refused").ok(t); out != want {
		t.Errorf("it says\n%s, want\n%s", out, want)
	}
}

// refuse answers each client that it has not the right version, or the right to connect, in a daemon's words.
func refuse(listener *net.UnixListener, why error) {
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		conn := abi.NewConn(c)
		if h, _, _, err := conn.Receive(); err == nil {
			body, status := abi.PutError(nil, why)
			_ = conn.Send(abi.Header{Op: h.Op, Seq: h.Seq, Status: status}, body)
		}
		_ = c.Close()
	}
}

// TestVerbsMismatch: a daemon of another version, and one that this user may not use, are told by errno, and with
// GOROCE_DEBUG=1 in the daemon's words.
func TestVerbsMismatch(t *testing.T) {
	besides(t)
	program := compileVerbs(t, "testdata/verbs_rules.c")
	for _, c := range []struct {
		name, says string
		why        error // of the daemon, if the socket lets one in
		mode       os.FileMode
		errno      syscall.Errno
		advice     string // without GOROCE_DEBUG
	}{
		{"version", "the daemon speaks version 99", fmt.Errorf("the daemon speaks version 99: %w", abi.ErrVersion),
			0o777, syscall.EPROTO, ""},
		{"user", "user 7 is not of the group", fmt.Errorf("user 7 is not of the group: %w", abi.ErrPermission),
			0o777, syscall.EPERM, ""},
		{"socket", "Permission denied", nil, 0, syscall.EACCES, "this user may not connect to the daemon at "},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &host{dir: userDir(t), libs: libs(t)}
			h.socket = filepath.Join(h.dir, "s")
			listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: h.socket, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if err := os.Chmod(h.socket, c.mode); err != nil {
				t.Fatal(err)
			}
			go refuse(listener, c.why)
			env := []string{"LD_LIBRARY_PATH=" + h.libs}
			want := fmt.Sprintf("errno %d\n", c.errno)
			out := h.with(t, env, program, "refused").ok(t)
			if !strings.Contains(out, c.advice) || !strings.HasSuffix(out, want) || c.advice == "" && out != want {
				t.Errorf("it says\n%s, want %s%s", out, c.advice, want)
			}
			out = h.with(t, append(env, "GOROCE_DEBUG=1"), program, "refused").ok(t)
			if !strings.Contains(out, c.says) || !strings.HasSuffix(out, want) {
				t.Errorf("with GOROCE_DEBUG=1 it says\n%s, want %q and %s", out, c.says, want)
			}
		})
	}
}
