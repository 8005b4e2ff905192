package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/internal/cells"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/link/port"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// examine runs all checks where in runs functions.
func examine(t *testing.T, in func(func() error) error, o Options) (found []Finding) {
	t.Helper()
	err := in(func() error {
		r, err := Examine(o)
		found = r.Findings
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// here runs f in the namespace of the test.
func here(f func() error) error { return f() }

// text is a list of findings as people see it.
func text(found []Finding) string {
	var b bytes.Buffer
	_ = (&Report{Findings: found}).Write(&b, term.Terminal{})
	return b.String()
}

// pick returns the finding of a check with that status whose text has words; nil if
// there is none.
func pick(found []Finding, check string, s Status, words string) *Finding {
	for i := range found {
		if f := &found[i]; f.Check == check && f.Status == s && strings.Contains(f.Text, words) {
			return f
		}
	}
	return nil
}

// shell runs a remedy.
func shell(command string) error {
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil || command == "" {
		return fmt.Errorf("%q: %v: %s", command, err, out)
	}
	return nil
}

// wantFound ends the test unless the finding is there, with a remedy.
func wantFound(t *testing.T, found []Finding, check string, s Status, words string) Finding {
	t.Helper()
	f := pick(found, check, s, words)
	if f == nil {
		t.Fatalf("no finding %v %s that says %q:\n%s", s, check, words, text(found))
	}
	if f.Remedy == "" {
		t.Errorf("no remedy: %+v", *f)
	}
	return *f
}

// wantOK fails the test unless the check finds only that all is well.
func wantOK(t *testing.T, found []Finding, check string) {
	t.Helper()
	any := false
	for _, f := range found {
		if f.Check == check {
			any = true
			if f.Status != OK {
				t.Errorf("%v %s: %s, want %v", f.Status, f.Check, f.Text, OK)
			}
		}
	}
	if !any {
		t.Errorf("check %s found nothing at all:\n%s", check, text(found))
	}
}

// TestLoopback: as anybody, a free address can be spoken from.
func TestLoopback(t *testing.T) {
	addr := linktest.Loopback()
	found := examine(t, here, Options{Addrs: []netip.Addr{addr}})
	for _, check := range []string{"interface", "gids", "mtu", "port", "device"} {
		wantOK(t, found, check)
	}
	if f := pick(found, "device", OK, "link udp, the automatic choice"); f == nil {
		t.Errorf("the link is not named:\n%s", text(found))
	}
	if f := pick(examine(t, here, Options{Peer: addr}), "interface", OK, "lo is up"); f == nil {
		t.Error("the interface is not the one that leads to the peer")
	}
	for _, c := range checks { // every check says something, but for these
		if c.name != "rp_filter" && c.name != "route" && c.name != "peer" &&
			!slices.ContainsFunc(found, func(f Finding) bool { return f.Check == c.name }) {
			t.Errorf("check %s found nothing", c.name)
		}
	}
}

// TestPortTaken: by another program, and by goroce.
func TestPortTaken(t *testing.T) {
	addr := linktest.Loopback()
	o := Options{Addrs: []netip.Addr{addr}}
	hold, err := net.ListenPacket("udp", net.JoinHostPort(addr.String(), "4791"))
	if err != nil {
		t.Fatal(err)
	}
	f := wantFound(t, examine(t, here, o), "port", Fail,
		fmt.Sprintf("%v:4791 is taken by process %d", addr, os.Getpid()))
	if want := fmt.Sprintf("kill %d", os.Getpid()); f.Command != want {
		t.Errorf("command %q, want %q", f.Command, want)
	}
	hold.Close()
	wantOK(t, examine(t, here, o), "port")

	hold, err = net.ListenPacket("udp", net.JoinHostPort(addr.String(), "4791"))
	if err != nil {
		t.Fatal(err)
	}
	notice := port.Announce(addr)
	wantFound(t, examine(t, here, o), "port", Fail, fmt.Sprintf("taken by goroce in process %d", os.Getpid()))
	notice.Withdraw()
	hold.Close()
	wantOK(t, examine(t, here, o), "port")
}

// TestPortHolderEnds: the command of the remedy clears the finding.
func TestPortHolderEnds(t *testing.T) {
	python := require.Command(t, "python3")
	addr := linktest.Loopback()
	o := Options{Addrs: []netip.Addr{addr}}
	holder := exec.Command(python, "-c", `import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 4791)); print("bound", flush=True); time.sleep(60)`, addr.String())
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Process.Kill()
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	f := wantFound(t, examine(t, here, o), "port", Fail, "(python")
	if err := shell(f.Command); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	wantOK(t, examine(t, here, o), "port")
}

// TestMissing: an unknown name is answered with the known ones.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{NetIf: "nosuch0"}, "nosuch0"},
		{Options{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.177")}}, "192.0.2.177"},
	} {
		f := wantFound(t, examine(t, here, c.o), "interface", Fail, c.want)
		if c.o.NetIf != "" && !strings.Contains(f.Remedy, "lo") {
			t.Errorf("the remedy does not say what there is: %s", f.Remedy)
		}
	}
	if _, err := Examine(Options{NetIf: "lo", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}); err == nil {
		t.Error("an interface and addresses together are taken")
	}
}

// TestNext: when nothing fails the doctor ends with what to try, else with the problems.
func TestNext(t *testing.T) {
	addr := linktest.Loopback()
	last := func(o Options) string {
		r, err := Examine(o)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_ = r.Write(&b, term.Terminal{})
		_, after, _ := strings.Cut(b.String(), " fail\n")
		return after
	}
	t.Setenv(socket.ClientVariable, filepath.Join(t.TempDir(), "none"))
	if got := last(Options{Addrs: []netip.Addr{addr}}); got != "" { // a daemon is named that is not there
		t.Errorf("with a problem, want nothing:\n%s", got)
	}
	_ = os.Unsetenv(socket.ClientVariable)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Addrs: []netip.Addr{addr}}, "goroced pingpong --addr " + addr.String()},
		{Options{Addrs: []netip.Addr{addr}, Peer: addr}, "goroced pingpong --addr " + addr.String()},
	} {
		if got := last(c.o); !strings.Contains(got, c.want) || !strings.Contains(got, "goroced run -- ib_write_bw") {
			t.Errorf("no %q:\n%s", c.want, got)
		}
	}
}

// TestNextAddress: what to run is on another host if one reaches the address, and else on this one, from another
// address. No line is wider than 80 columns.
func TestNextAddress(t *testing.T) {
	for _, c := range []struct{ addrs, client, does string }{
		{"10.0.0.1", "pingpong 10.0.0.1", "here, then on another host:"},
		{"127.0.0.1 fe80::1%lo 10.0.0.1", "pingpong 10.0.0.1", "here, then on another host:"},
		{"2001:db8:1234:5678:9abc:def0:1234:5678", "pingpong 2001:db8:1234:5678:9abc:def0:1234:5678",
			"here, then on another host:"},
		{"127.0.0.1", "pingpong --addr 127.0.0.3 127.0.0.1", "only this host reaches it; then here:"},
		{"127.0.0.3", "pingpong --addr 127.0.0.4 127.0.0.3", "only this host reaches it; then here:"},
		{"127.255.255.254", "pingpong --addr 127.0.0.3 127.255.255.254", "only this host reaches it; then here:"},
		{"::1", "run -- ib_write_bw", "RDMA for every program of yours, then:"}, // the only one of its kind
	} {
		e := machine(t, nil)
		e.usable = nil
		for _, a := range strings.Fields(c.addrs) {
			e.usable = append(e.usable, netip.MustParseAddr(a))
		}
		e.getOwner = func(a netip.Addr) port.Owner {
			if a.String() == "127.0.0.2" {
				return port.Owner{UID: 1000}
			}
			return port.Owner{UID: -1}
		}
		r := Report{Next: e.next()}
		if r.Next[0].Does != c.does || r.Next[1].Command != "goroced "+c.client {
			t.Errorf("%s: %+v, want %q, then %q", c.addrs, r.Next, c.does, c.client)
		}
		wantNarrow(t, &r)
	}
}

// TestNextFlags: the tools get the flags that chose what was examined; those of the peer are its own.
func TestNextFlags(t *testing.T) {
	one, two, peer := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.9")
	for _, c := range []struct {
		o             Options
		first, second string
	}{
		{Options{NetIf: "eth0"}, "--netif eth0", "10.0.0.1"},
		{Options{Addrs: []netip.Addr{one, two}}, "--addr 10.0.0.1,10.0.0.2", "10.0.0.1"},
		{Options{NetIf: "eth0", Peer: peer}, "", "--netif eth0 10.0.0.9"},
	} {
		e := machine(t, nil)
		e.Options = c.o
		got := e.next()
		first := strings.TrimSpace("goroced pingpong " + c.first)
		if got[0].Command != first || got[1].Command != "goroced pingpong "+c.second {
			t.Errorf("%+v: %+v; want %q and %q", c.o, got, first, "goroced pingpong "+c.second)
		}
	}
}

// wantNarrow fails the test if a line of the report is wider than 80 columns.
func wantNarrow(t *testing.T, r *Report) {
	t.Helper()
	var b bytes.Buffer
	_ = r.Write(&b, term.Terminal{})
	for line := range strings.Lines(b.String()) {
		if n := cells.Count(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns, want at most 80: %s", n, line)
		}
	}
}

// TestReachable: of several addresses of a peer the one that what is examined has a way to.
func TestReachable(t *testing.T) {
	four, six, none := linktest.Loopback(), netip.MustParseAddr("::1"), netip.MustParseAddr("ff00::")
	for _, c := range []struct {
		addrs []netip.Addr
		local netip.Addr
		want  netip.Addr
	}{
		{[]netip.Addr{six, four}, linktest.Loopback(), four},
		{[]netip.Addr{four, six}, linktest.Loopback(), four},
		{[]netip.Addr{four, six}, six, six},
		{[]netip.Addr{none, six}, linktest.Loopback(), none},
	} {
		if got := reachable(c.addrs, Options{Addrs: []netip.Addr{c.local}}); got != c.want {
			t.Errorf("from %v to %v: %v, want %v", c.local, c.addrs, got, c.want)
		}
	}
}

// TestNextDaemon: with a daemon nobody is asked to start one.
func TestNextDaemon(t *testing.T) {
	e := machine(t, nil)
	ownSocket := e.login(t)
	has := func(words string) bool {
		return slices.ContainsFunc(e.next(), func(s Step) bool { return strings.Contains(s.Command, words) })
	}
	if !has("serve") || has("--daemon") {
		t.Errorf("without a daemon: %+v", e.next())
	}
	addr, _ := newDaemon(t, ownSocket, server.Options{})
	if has("serve") || !has("--daemon") {
		t.Errorf("with a daemon: %+v", e.next())
	}
	e.usable = []netip.Addr{addr}
	if !has("pingpong --daemon " + addr.String()) {
		t.Errorf("at the daemon's address: %+v", e.next())
	}
	e.usable = []netip.Addr{linktest.Loopback()}
	if has("--daemon") || !has("--addr") {
		t.Errorf("at an address that the daemon does not have: %+v", e.next())
	}
}

// TestJSON: the same findings, and one flag for scripts.
func TestJSON(t *testing.T) {
	for _, s := range []Status{OK, Warn, Fail} {
		var b bytes.Buffer
		r := Report{Findings: []Finding{{Check: "x", Status: s, Text: "<a>", Command: "b"}}}
		if err := r.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		var got struct {
			OK       bool
			Findings []map[string]string
		}
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.OK != (s != Fail) || len(got.Findings) != 1 || got.Findings[0]["status"] != s.String() ||
			got.Findings[0]["command"] != "b" {
			t.Errorf("%v: %s, want it in JSON, with the command b", s, b.String())
		}
	}
}

// TestManual: what docs/operate.md says that the doctor says is in the words of this package.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("../../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") {
			source.Write(text)
		}
	}
	_, rows, _ := strings.Cut(string(manual), "## Troubleshooting")
	said := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)` \\|").FindAllStringSubmatch(rows, -1)
	if len(said) < 10 {
		t.Errorf("the table has %d rows, want at least 10", len(said))
	}
	for _, m := range said {
		if !strings.Contains(source.String(), m[1]) {
			t.Errorf("the doctor never says %q, want it in its source", m[1])
		}
	}
}
