//go:build linux

package dropin

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/conformance"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// buildRnic builds a program over package rnic, which calls libibverbs. It returns what starts the program on a host.
// The library may be a build with a sanitizer.
func buildRnic(t testing.TB, sanitizer string, command ...string) (start func(h *host, args ...string) *process) {
	t.Helper()
	needVerbs(t)
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		require.Missing(t, "package librdmacm-dev is not installed: %v", err)
	}
	last := len(command) - 1 // the package
	program := filepath.Join(work, filepath.Base(command[last])+"-"+sanitizer)
	flags := []string{"-tags", "rnic", "-o", program}
	cmd := exec.Command("go", slices.Concat(command[:last], flags, command[last:])...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if sanitizer == "thread" {
		// Then Go's runtime tells the sanitizer in which order threads call C.
		cmd.Env = append(cmd.Env, "CGO_CFLAGS=-O1 -g -fsanitize=thread", "CGO_LDFLAGS=-fsanitize=thread")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	device := "GOROCE_RNIC=blue" // of the tests of package rnic
	if sanitizer == "" {
		return func(h *host, args ...string) *process {
			return h.run(t, append([]string{"env", device, program}, args...)...)
		}
	}
	env := append(sanitized(t, sanitizer), device)
	return func(h *host, args ...string) *process { return h.with(t, env, append([]string{program}, args...)...) }
}

// blueHost starts a daemon in a network namespace, whose device is named blue.
func blueHost(t testing.TB, in *linktest.Namespace) *host {
	t.Helper()
	h := &host{addr: in.Addr4, dir: userDir(t), in: in, libs: libs(t)}
	h.startDaemon(t, "--netif", in.IfName, "--set", "device.name=blue")
	return h
}

// repeats ends a test or row that shows little more than others do, in a plain run.
func repeats(t testing.TB, is bool) {
	t.Helper()
	if is {
		require.FullRun(t, "other rows show most of it, too")
	}
}

// rnicDeviations are the tests of package rnic that do not pass, and why.
var rnicDeviations = map[string]string{
	"TestCMClose": "rdma(8), which it asks for IDs that are left, shows those of the kernel",
	noWay:         "the way to a peer is looked for when packets go there: requests fail with RETRY_EXC_ERR",
}

const noWay = "TestRefusedModify$/^no_way_to_it"

// TestConformRnic: package rnic finds in the device what it finds in an RNIC. The link has what its tests look for: an
// MTU below the largest, and addresses of both versions.
func TestConformRnic(t *testing.T) {
	require.Root(t)
	for _, sanitizer := range []string{"", "address", "thread"} {
		t.Run("sanitizer="+sanitizer, func(t *testing.T) {
			repeats(t, sanitizer != "")
			start := buildRnic(t, sanitizer, "test", "-c", "../../roce/rnic")
			ns, _ := linktest.NewVeth(t, 1500)
			testRnic(t, blueHost(t, ns), start)
		})
	}
}

// testRnic runs all tests but those with a deviation, and checks that these do fail.
func testRnic(t *testing.T, h *host, start func(h *host, args ...string) *process) {
	names := slices.Sorted(maps.Keys(rnicDeviations))
	out, err := start(h, "-test.v", "-test.skip", "^"+strings.Join(names, "$|^")+"$").wait(t)
	if err != nil || strings.Contains(out, "Sanitizer") {
		t.Errorf("%v, want no error, none of a sanitizer\n%s", err, out)
	}
	passed := strings.Count(out, "\n--- PASS: ")
	if skipped := regexp.MustCompile(`(?m)^ *--- SKIP: .*\n.*`).FindString(out); skipped != "" || passed < 40 {
		t.Errorf("%d tests passed, and one was skipped: %q; want 40 or more, and none", passed, skipped)
	}
	for _, name := range names {
		out, err := start(h, "-test.v", "-test.run", "^"+name+"$").wait(t)
		if err == nil || !strings.Contains(out, "--- FAIL: ") {
			t.Errorf("%s does not fail any more (%s):\n%s", name, rnicDeviations[name], out)
		}
	}
}

// A suite is a way to run the conformance suite over the libraries. Where they differ from the software device itself
// is said in its table of deviations, as kind "dropin".
type suite struct {
	name      string
	twice     bool   // two daemons, in network namespaces
	ipv6      bool   // of which version the addresses are; twice only
	sanitizer string // a build of libibverbs that looks for bugs
	full      bool   // only with GOROCE_FULL=1
}

// TestConform runs the suite of tests/conformance over the libraries.
func TestConform(t *testing.T) {
	repeats(t, true)
	besides(t)
	(&suite{sanitizer: "thread"}).run(t)
}

// TestConformTwoHosts runs it over two daemons.
func TestConformTwoHosts(t *testing.T) {
	require.Root(t)
	besides(t)
	for _, s := range []suite{
		{name: "IPv6", twice: true, ipv6: true},
		{name: "IPv4, address sanitizer", twice: true, sanitizer: "address", full: true},
	} {
		t.Run(s.name, func(t *testing.T) {
			repeats(t, s.full)
			s.run(t)
		})
	}
}

// suiteTimeout is for hundreds of cases, each of which has a limit of its own.
const suiteTimeout = 15 * time.Minute

// suitePort is the TCP port of the side that serves.
const suitePort = 18590

func (s *suite) run(t *testing.T) {
	start := buildRnic(t, s.sanitizer, "build", "../conformance/cmd/conformance")
	client, server, meet := s.hosts(t)
	peer := fmt.Sprintf("%s:%d", meet, suitePort)
	serving := start(server, "serve", "-kind", "dropin", "-device", "rnic:", "-gid", s.address(server), "-listen", peer)
	serving.listens(t, suitePort)
	out, err := start(client, "run", "-kind", "dropin", "-device", "rnic:", "-gid", s.address(client), "-peer", peer,
		"-json").waitFor(t, suiteTimeout)
	judge(t, out, err)
	if said := serving.out.String(); strings.Contains(said+out, "Sanitizer") {
		t.Errorf("the client:\n%s\nthe server:\n%s", out, said)
	}
	serving.mustRun(t)
}

// hosts returns where the sides are, and the address at which they meet.
func (s *suite) hosts(t *testing.T) (client, server *host, meet string) {
	if !s.twice {
		h := newHost(t, nil)
		return h, h, "127.0.0.1"
	}
	a, b := linktest.NewVeth(t, 1500)
	client, server = blueHost(t, a), blueHost(t, b)
	return client, server, server.addr.String()
}

// address returns the address that a side speaks from.
func (s *suite) address(h *host) string {
	if s.ipv6 {
		return h.in.Addr6.String()
	}
	return h.addr.String()
}

// judge makes a subtest of each outcome.
func judge(t *testing.T, out string, err error) {
	outcomes, malformed := conformance.ReadOutcomes([]byte(out))
	passed := 0
	for _, o := range outcomes {
		passed++
		t.Run(o.Name, func(t *testing.T) {
			switch {
			case o.Err != "":
				t.Errorf("after %d ms: %s", o.Millis, o.Err)
			case strings.Contains(o.Skip, "lacks"):
				t.Error(o.Skip)
			case o.Skip != "":
				t.Skip("skipped: " + o.Skip)
			case o.Note != "":
				t.Log(o.Note)
			}
		})
	}
	if !t.Failed() && (err != nil || malformed != nil) || passed < 1300 {
		t.Errorf("after %d cases, want 1300 or more: %v, %v\n%s", passed, err, malformed, out[max(0, len(out)-2000):])
	}
}
