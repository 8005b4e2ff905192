package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goroce/goroce/roce/daemon/machine"
	"github.com/goroce/goroce/roce/daemon/server"
)

// write makes a configuration file.
func write(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "goroced.toml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// user is an ordinary user's environment.
var user = []string{"XDG_RUNTIME_DIR=/run/user/1000", "HOME=/home/nobody-at-all"}

func TestDefaults(t *testing.T) {
	run, uid := t.TempDir(), os.Geteuid()
	if uid == 0 {
		uid = 1000
	}
	if err := errors.Join(os.Chmod(run, 0o700), os.Chown(run, uid, -1)); err != nil {
		t.Fatal(err)
	}
	private := fmt.Sprintf("/tmp/goroce-%d", uid+1)
	for _, c := range []struct {
		uid           int
		socket, admin string
		mode          fs.FileMode
	}{
		{0, "/run/goroce/goroced.sock", "/run/goroce/goroced-admin.sock", 0o660},
		{uid, run + "/goroce/goroced.sock", run + "/goroce/goroced-admin.sock", 0o600},
		{uid + 1, private + "/goroced.sock", private + "/goroced-admin.sock", 0o600},
		// the directory is not this user's
	} {
		got, err := Load(Sources{File: write(t, ""), Environ: []string{"XDG_RUNTIME_DIR=" + run}, UID: c.uid})
		if err != nil {
			t.Fatal(err)
		}
		if got.Socket != c.socket || got.Admin != c.admin || got.SocketMode != c.mode {
			t.Errorf("user %d: sockets %s and %s, mode %o; want %s, %s and %o", c.uid, got.Socket, got.Admin,
				got.SocketMode, c.socket, c.admin, c.mode)
		}
		if !got.OwnProcesses || got.OtherProcesses || got.Metrics.IsValid() {
			t.Errorf("user %d: process memory %v, %v, metrics %v; want only the own, none", c.uid, got.OwnProcesses,
				got.OtherProcesses, got.Metrics)
		}
		if diff := cmp.Diff([]Device{{Link: "auto", Congestion: "cubic"}}, got.Devices); diff != "" {
			t.Error(diff)
		}
	}
}

// TestDefaultFile: the file that nobody names need not be there, one that is named must.
func TestDefaultFile(t *testing.T) {
	home := t.TempDir()
	s := Sources{Environ: []string{"XDG_RUNTIME_DIR=/run/user/1", "XDG_CONFIG_HOME=" + home}, UID: 1}
	if _, err := Load(s); err != nil {
		t.Errorf("no file: %v", err)
	}
	file := filepath.Join(home, "goroce", "goroced.toml")
	if got := s.DefaultFile(); got != file {
		t.Errorf("default file %s, want %s", got, file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("drain = '3s'"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(s); err != nil || c.Drain != 3*time.Second {
		t.Errorf("default file: %+v, %v; want 3s", c, err)
	}
	for _, s := range []Sources{
		{File: "/nonexistent/x.toml", Environ: user, UID: 1},
		{Environ: append(user, "GOROCED_CONFIG=/nonexistent/x.toml"), UID: 1},
	} {
		if _, err := Load(s); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nonexistent/x.toml") {
			t.Errorf("a file that is named and not there: %v, want %v and %q", err, fs.ErrNotExist,
				"/nonexistent/x.toml")
		}
	}
}

const full = `
socket = "/tmp/x/s"
admin = "/tmp/x/a"
socket_mode = "0666"
socket_group = "rdma"
drain = "1m"

[[device]]
name = "blue"
link = "udp"
netif = "eth0"
shards = 4

[[device]]
addresses = ["192.0.2.1", "fe80::1%eth1"]

[limits.user]
connections = 3
qps = 1
pinned = "2GiB"

[limits.connection]
cq_entries = 77
pinned = 4096

[memory]
own_processes = false
other_processes = true

[log]
level = "debug"
format = "json"

[metrics]
listen = "[::1]:9471"
`

func TestFile(t *testing.T) {
	got, err := Load(Sources{File: write(t, full), Environ: user, UID: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := defaults(1, Sources{Environ: user}.getenv, machine.Read())
	want.Socket, want.Admin, want.SocketMode, want.SocketGroup, want.Drain = "/tmp/x/s", "/tmp/x/a", 0o666, "rdma",
		time.Minute
	want.Devices = []Device{
		{Name: "blue", Link: "udp", NetIf: "eth0", Shards: 4, Congestion: "cubic"},
		{Link: "auto", Congestion: "cubic", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"),
			netip.MustParseAddr("fe80::1%eth1")}},
	}
	want.User.Connections, want.User.QPs, want.User.Pinned = 3, 1, 2<<30
	want.Connection.CQEntries, want.Connection.Pinned = 77, 4096
	want.OwnProcesses, want.OtherProcesses = false, true
	want.LogLevel, want.LogFormat = slog.LevelDebug, "json"
	want.Metrics = netip.MustParseAddrPort("[::1]:9471")
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{}),
		cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
}

// TestLayers: flags override the environment, which overrides the file, which overrides the defaults; and each value
// knows where it is from.
func TestLayers(t *testing.T) {
	file := write(t,
		"drain = '1s'\nsocket_group = 'a'\nadmin = '/f'\n[[device]]\nnetif = 'lo'\n[[device]]\nnetif = 'eth0'\n")
	c, err := Load(Sources{File: file, UID: 1,
		Environ: append(user, "GOROCED_DRAIN=2s", "GOROCED_SOCKET_GROUP=b", "GOROCED_DEVICE_SHARDS=2",
			"GOROCED_DEVICE_LINK=rawsock", "GOROCED_LIMITS_USER_QPS=5", "GOROCED_LIMITS_CONNECTION_PINNED=1MiB",
			"GOROCED_MEMORY_OWN_PROCESSES=false", "GOROCED_SOCKET="),
		Flags: []Flag{{"--drain", "drain", "3s"}, {"--addr", "device.addresses", "192.0.2.1,192.0.2.2"},
			{"--link", "device.link", "udp"}}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Setting{}
	for _, s := range c.Settings() {
		got[s.Key] = s
	}
	for key, want := range map[string]Setting{
		"drain":                    {Value: "3s", Origin: "--drain"},
		"socket_group":             {Value: "b", Origin: "GOROCED_SOCKET_GROUP"},
		"admin":                    {Value: "/f", Origin: file + ":3"},
		"log.level":                {Value: "info", Origin: "default"},
		"limits.user.qps":          {Value: int64(5), Origin: "GOROCED_LIMITS_USER_QPS"},
		"limits.connection.pinned": {Value: "1MiB", Origin: "GOROCED_LIMITS_CONNECTION_PINNED"},
		"memory.own_processes":     {Value: false, Origin: "GOROCED_MEMORY_OWN_PROCESSES"},
		"device[0].link":           {Value: "udp", Origin: "--link"},
		"device[0].shards":         {Value: int64(2), Origin: "GOROCED_DEVICE_SHARDS"},
		"device[0].addresses":      {Value: []any{"192.0.2.1", "192.0.2.2"}, Origin: "--addr"},
		"device[0].netif":          {Value: "", Origin: "default"},
	} {
		if diff := cmp.Diff(want, got[key], cmpopts.IgnoreFields(Setting{}, "Key"),
			cmpopts.IgnoreUnexported(Setting{})); diff != "" {
			t.Errorf("%s (-want +got): %s", key, diff)
		}
	}
	if _, more := got["device[1].netif"]; more {
		t.Error("the flags' device stands beside those of the file")
	}
}

// badFiles are files and what is wrong with them.
var badFiles = []struct {
	name, file string
	want       []Error // without Source and Value
}{
	{"unknown key", "drain = '1s'\n\nsoket = 'x'",
		[]Error{{Line: 3, Key: "soket", Allowed: "socket, admin, socket_mode, ", Err: ErrUnknownKey}}},
	{"unknown table", "[limits.usr]\nqps = 1",
		[]Error{{Line: 2, Key: "limits.usr.qps", Allowed: "user, connection", Err: ErrUnknownKey}}},
	{"unknown key in table", "[limits.user]\n# QPs\nqp = 1",
		[]Error{{Line: 3, Key: "limits.user.qp",
			Allowed: "connections, cm_ids, cm_listeners, cm_half_open, cm_backlog, qps", Err: ErrUnknownKey}}},
	{"unknown table", "\n[nosuch]\na = 1",
		[]Error{{Line: 3, Key: "nosuch.a", Allowed: "limits, memory, log, metrics, device", Err: ErrUnknownKey}}},
	{"unknown empty table", "\n[nosuch]\n",
		[]Error{{Line: 2, Key: "nosuch", Allowed: "device", Err: ErrUnknownKey}}},
	{"dotted key", "limits.user.nosuch = 1",
		[]Error{{Line: 1, Key: "limits.user.nosuch", Allowed: "qps", Err: ErrUnknownKey}}},
	{"inline table", "[limits]\nuser = { qps = 1, mrs = -1 }",
		[]Error{{Line: 2, Key: "limits.user.mrs", Allowed: "0 to 16777216", Err: ErrValue}}},
	{"wrong type", "[limits.connection]\nqps = 'many'",
		[]Error{{Line: 2, Key: "limits.connection.qps", Allowed: "a number", Err: ErrType}}},
	{"table wanted", "log = 'debug'", []Error{{Line: 1, Key: "log", Allowed: "log", Err: ErrUnknownKey}}},
	{"out of range", "[limits.connection]\n\nqps = 16777217",
		[]Error{{Line: 3, Key: "limits.connection.qps", Allowed: "16777216", Err: ErrValue}}},
	{"float", "[limits.user]\npinned = 1.5",
		[]Error{{Line: 2, Key: "limits.user.pinned", Allowed: "GiB", Err: ErrType}}},
	{"size too large", "[limits.user]\npinned = '9999999999TiB'",
		[]Error{{Line: 2, Key: "limits.user.pinned", Allowed: "GiB", Err: ErrValue}}},
	{"mode without quotes", "socket_mode = 0o660",
		[]Error{{Line: 1, Key: "socket_mode", Allowed: "in quotes", Err: ErrType}}},
	{"mode", "socket_mode = '0999'", []Error{{Line: 1, Key: "socket_mode", Allowed: "0600", Err: ErrValue}}},
	{"duration", "drain = '10'", []Error{{Line: 1, Key: "drain", Allowed: "10s", Err: ErrValue}}},
	{"level", "[log]\nlevel = 'loud'",
		[]Error{{Line: 2, Key: "log.level", Allowed: "debug, info, warn, error", Err: ErrValue}}},
	{"boolean", "[memory]\nother_processes = 1",
		[]Error{{Line: 2, Key: "memory.other_processes", Allowed: "true, false", Err: ErrType}}},
	{"relative path", "socket = 'goroced.sock'",
		[]Error{{Line: 1, Key: "socket", Allowed: "absolute path", Err: ErrValue}}},
	{"long path", "socket = '/" + strings.Repeat("x", 107) + "'",
		[]Error{{Line: 1, Key: "socket", Allowed: "107 bytes", Err: ErrValue}}},
	{"control character in a path", "socket = \"/x\\u007f\"",
		[]Error{{Line: 1, Key: "socket", Allowed: "control", Err: ErrValue}}},
	{"one socket", "socket = '/a'\nadmin = '/a'",
		[]Error{{Line: 2, Key: "admin", Allowed: "not that of socket", Err: ErrConflict}}},
	{"second device", "[[device]]\nnetif = 'eth0'\n[[device]]\nlink = 'ib'\n",
		[]Error{{Line: 4, Key: "device[1].link", Allowed: "auto, udp, rawsock, afxdp", Err: ErrValue}}},
	{"inline device", "device = [\n{netif = 'eth0'},\n{netif = 'eth1', shards = 3},\n]",
		[]Error{{Line: 3, Key: "device[1].shards", Allowed: "power of two", Err: ErrValue}}},
	{"device without brackets", "[device]\nnetif = 'eth0'",
		[]Error{{Line: 2, Key: "device.netif", Allowed: "socket", Err: ErrUnknownKey}}},
	{"address", "[[device]]\naddresses = ['192.0.2.1', 'x']",
		[]Error{{Line: 2, Key: "device[0].addresses", Allowed: "IP addresses", Err: ErrValue}}},
	{"both", "[[device]]\nnetif = 'eth0'\naddresses = ['192.0.2.1']",
		[]Error{{Line: 3, Key: "device[0].addresses", Allowed: "not both", Err: ErrConflict}}},
	{"one interface twice", "[[device]]\nnetif = 'eth0'\n[[device]]\nnetif = 'eth0'",
		[]Error{{Line: 4, Key: "device[1].netif", Allowed: "device[0]", Err: ErrConflict}}},
	{"public metrics", "[metrics]\nlisten = '0.0.0.0:1'",
		[]Error{{Line: 2, Key: "metrics.listen", Allowed: "metrics.public", Err: ErrConflict}}},
	{"public profiles", "[metrics]\npublic = true\npprof = true",
		[]Error{{Line: 3, Key: "metrics.pprof", Allowed: "false where metrics.public", Err: ErrConflict}}},
	{"syntax", "drain = '1s'\n[log\n", []Error{{Line: 2, Allowed: "TOML", Err: ErrSyntax}}},
	{"too large", strings.Repeat("#", maxFile+1), []Error{{Allowed: "at most 1048576 bytes", Err: ErrTooLarge}}},
	{"syntax and quotes", "drain = 1s\nidle_exit = 2s\nsocket_mode = 0660\n[log\n", []Error{
		{Line: 4, Allowed: "TOML", Err: ErrSyntax},
		{Line: 1, Allowed: `"1s"`, Err: ErrQuotes}, {Line: 2, Allowed: `"2s"`, Err: ErrQuotes},
		{Line: 3, Allowed: `"0660"`, Err: ErrQuotes}}},
	{"twice", "drain = '1s'\ndrain = '1s'\n", []Error{{Line: 2, Allowed: "TOML", Err: ErrSyntax}}},
	{"all of them", "drain = 1\n[log]\nlevel = 'x'\nnosuch = 2", []Error{
		{Line: 1, Key: "drain", Allowed: "10s", Err: ErrType},
		{Line: 3, Key: "log.level", Allowed: "debug", Err: ErrValue},
		{Line: 4, Key: "log.nosuch", Allowed: "level, format", Err: ErrUnknownKey}}},
}

// TestErrors: what is wrong is named with file, line and key, and what is allowed.
func TestErrors(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, c.file)
			_, err := Load(Sources{File: file, Environ: user, UID: 1})
			wantErrors(t, err, file, c.want)
		})
	}
}

// TestMisspelt: the key that an unknown one is a misspelling of is suggested, and no other.
func TestMisspelt(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"soket = '/s'", `soket: unknown key, did you mean "socket"?; allowed: socket, admin, `},
		{"[limits.user]\nqp = 1", `did you mean "limits.user.qps"?`},
		{"[limits.usr]\nqps = 1", `did you mean "limits.user"?`},
		{"[log]\nlevle = 'info'", `did you mean "log.level"?`},
		{"[[device]]\nnetfi = 'lo'", `did you mean "device[0].netif"?`},
		{"[[devcie]]\nnetif = 'lo'", `did you mean "device"?`},
		{"nosuch = 1", "nosuch: unknown key; allowed: "},
		{"log = 'debug'", "log: unknown key; allowed: "},
		{"[device]\nnetif = 'lo'", "device.netif: unknown key; allowed: "},
	} {
		_, err := Load(Sources{File: write(t, c.file), Environ: user, UID: 1})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.file, err, c.want)
		}
	}
}

// wantErrors checks the *Error values that an error joins.
func wantErrors(t *testing.T, err error, source string, want []Error) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != len(want) {
		t.Fatalf("errors %v, want %d", err, len(want))
	}
	for i, w := range want {
		var e *Error
		if !errors.As(joined.Unwrap()[i], &e) {
			t.Fatalf("%v is no *Error", joined.Unwrap()[i])
		}
		if e.Source != source && w.Source == "" || w.Source != "" && e.Source != w.Source || e.Line != w.Line ||
			e.Key != w.Key || !errors.Is(e, w.Err) || !strings.Contains(e.Allowed, w.Allowed) {
			t.Errorf("got %+v: %v\nwant %+v", *e, e, w)
		}
		if text := e.Error(); !strings.Contains(text, e.Key) || !strings.Contains(text, e.Allowed) ||
			!strings.Contains(text, e.place()) {
			t.Errorf("the text lacks something, want key, allowed values and place: %s", text)
		}
	}
}

// TestTextErrors: the environment and flags are as strict as the file.
func TestTextErrors(t *testing.T) {
	_, err := Load(Sources{File: write(t, ""), UID: 1,
		Environ: append(user, "GOROCED_LIMITS_USER_QP=1", "GOROCED_LIMIT_USER_QPS=1", "GOROCED_=1",
			"GOROCED_DEVICE_SHARDS=3", "GOROCED_METRICS_PUBLIC=yes"),
		Flags: []Flag{{"--log-level", "log.level", "x"}, {"--set", "nosuch.key", "x"}}})
	wantErrors(t, err, "", []Error{
		{Source: "GOROCED_LIMITS_USER_QP",
			Allowed: "GOROCED_LIMITS_USER_PINNED, GOROCED_LIMITS_USER_QPS, GOROCED_LIMITS_USER_SRQS",
			Err:     ErrUnknownKey},
		{Source: "GOROCED_LIMIT_USER_QPS", Allowed: "GOROCED_LIMITS_USER_PINNED, GOROCED_LIMITS_USER_QPS",
			Err: ErrUnknownKey},
		{Source: "GOROCED_", Allowed: "GOROCED_SOCKET, GOROCED_SOCKET_GROUP, GOROCED_SOCKET_MODE", Err: ErrUnknownKey},
		{Source: "GOROCED_DEVICE_SHARDS", Key: "device.shards", Allowed: "power of two", Err: ErrValue},
		{Source: "GOROCED_METRICS_PUBLIC", Key: "metrics.public", Allowed: "true, false", Err: ErrValue},
		{Source: "--log-level", Key: "log.level", Allowed: "debug", Err: ErrValue},
		{Source: "--set", Key: "nosuch.key", Allowed: "limits", Err: ErrUnknownKey},
	})
	for name, want := range map[string]int{"GOROCED_LIMITS_USER_QP": 17, "GOROCED_METRICS_LISTEN_": 3,
		"GOROCED_X_Y": 51} {
		_, err := Load(Sources{File: write(t, ""), UID: 1, Environ: append(user, name+"=1")})
		if got := strings.Count(fmt.Sprint(err), envPrefix) - 1; got != want {
			t.Errorf("%s: %d variables are close, want %d: %v", name, got, want, err)
		}
	}
}

// TestSocketsWithoutRuntimeDirectory: they lie in the private directory.
func TestSocketsWithoutRuntimeDirectory(t *testing.T) {
	c, err := Load(Sources{File: write(t, ""), UID: 7})
	if err != nil || c.Socket != "/tmp/goroce-7/goroced.sock" || c.Admin != "/tmp/goroce-7/goroced-admin.sock" {
		t.Errorf("%+v, %v; want the sockets in /tmp/goroce-7", c, err)
	}
}

// TestShow: what it writes is a file that makes the same configuration, with every
// value from there.
func TestShow(t *testing.T) {
	for _, file := range []string{"", full, `admin = "/a'\"\\<b"`} {
		c, err := Load(Sources{File: write(t, file), Environ: user, UID: 1})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := c.Show(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Load(Sources{File: write(t, b.String()), UID: 1})
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		ignore := []cmp.Option{cmpopts.IgnoreUnexported(Setting{}), cmpopts.IgnoreFields(Setting{}, "Origin")}
		if diff := cmp.Diff(c.Settings(), again.Settings(), ignore...); diff != "" {
			t.Error(diff)
		}
		for _, s := range again.Settings() {
			if s.Origin == "default" {
				t.Errorf("%s is not shown:\n%s", s.Key, b.String())
			}
		}
		if diff := again.Restart(c); len(diff) != 0 {
			t.Errorf("the same configuration needs a restart for %v, want none", diff)
		}
	}
}

// TestDocument: the example of docs/daemon.md is a configuration.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(b), "```toml\n")
	example, _, ended := strings.Cut(example, "```")
	if !found || !ended {
		t.Fatal("there is no example")
	}
	c, err := Load(Sources{File: write(t, example)})
	if err != nil {
		t.Fatal(err)
	}
	want := defaults(0, os.Getenv, machine.Read())
	want.SocketGroup, want.Devices = "rdma", []Device{{Name: "blue", NetIf: "eth0", Link: "auto", Congestion: "cubic"}}
	if diff := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Config{}),
		cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("it does not show the defaults (-want +got): %s", diff)
	}
}

// TestRestart: limits and the log's level change in a running daemon, sockets and
// devices do not.
func TestRestart(t *testing.T) {
	load := func(file string) *Config {
		t.Helper()
		c, err := Load(Sources{File: write(t, file), Environ: user, UID: 1})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		old, now string
		want     []string
	}{
		{"", "drain = '1s'\n[limits.user]\nqps = 1\n[log]\nlevel = 'debug'\n[memory]\nown_processes = false", nil},
		{"", "socket = '/x'\n[log]\nformat = 'json'", []string{"socket", "log.format"}},
		{"[[device]]\nnetif = 'a'", "[[device]]\nnetif = 'b'", []string{"device[0].netif"}},
		{"", "[[device]]\nnetif = 'a'\n[[device]]\nnetif = 'b'", []string{"device[0].netif",
			"device[1].name", "device[1].link", "device[1].netif", "device[1].addresses", "device[1].shards",
			"device[1].pin_source_port", "device[1].congestion"}},
		{"[[device]]\nnetif = 'a'\n[[device]]\nnetif = 'b'", "[[device]]\nnetif = 'a'",
			[]string{"device[1].name", "device[1].link", "device[1].netif", "device[1].addresses", "device[1].shards",
				"device[1].pin_source_port", "device[1].congestion"}},
	} {
		if diff := cmp.Diff(c.want, load(c.now).Restart(load(c.old))); diff != "" {
			t.Errorf("from %q to %q (-want +got): %s", c.old, c.now, diff)
		}
	}
}

// FuzzFile: no file panics, and what is refused is refused with a line.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{full, "", "device = [{netif='a'}, 3]", "a.b.c = 1\n[a.b]\nd=2",
		"[[device]]\n[device.link]\nx=1", "[[device.x]]\n[device.x.y]\nz=1", "'' = 1", "[device]\n[[device]]",
		"[[a]]\n[[a.b]]\n[a.b.c]\nd = 1\n[[a]]\n[[a.b]]\ne=[{f=1}]",
		"\"limits.user\" = {qps=1}", "[\"\".\"\"]\n\"\" = {}\n", "[a]\n\"b.c\" = 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		parsed, err := parse("x", []byte(content))
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%v is no *Error", err)
			}
			return
		}
		c := defaults(0, os.Getenv, machine.Read())
		for _, err := range c.applyFile(parsed) {
			var e *Error
			if !errors.As(err, &e) || e.Line == 0 {
				t.Errorf("%v names no line, want one of\n%s", err, content)
			}
		}
		c.check()
	})
}

// TestServerLimits: the configuration has the key that a refused client is told to raise.
func TestServerLimits(t *testing.T) {
	keys := new(server.Server).UserLimits()
	if len(keys) < 2 {
		t.Fatalf("the server has limits for %v, want at least 2", keys)
	}
	for key := range keys {
		for _, table := range []string{"limits.user.", "limits.connection."} {
			machine := key == "mappings" || key == "descriptors" || key == "threads"
			if machine || key == "connections" && table == "limits.connection." { // a limit of users only
				continue
			}
			flags := []Flag{{Key: "socket", Value: "/s"}, {Key: "admin", Value: "/a"}, {Key: table + key, Value: "9"}}
			if _, err := Load(Sources{UID: -1, Flags: flags}); err != nil {
				t.Errorf("%s: %v", table+key, err)
			}
		}
	}
}

// TestMachine: the default limits leave a small machine its memory and its descriptors.
func TestMachine(t *testing.T) {
	for _, c := range []struct {
		machine.Capacity
		connections                      int
		user, heap, connection, connHeap int64
	}{
		{machine.Capacity{Memory: 64 << 30, Descriptors: 65536}, 1024, 32 << 30, 8 << 30, 16 << 30, 4 << 30},
		{machine.Capacity{Memory: 1 << 30, Descriptors: 1024}, 64, 512 << 20, 128 << 20, 256 << 20, 64 << 20},
		{machine.Capacity{Memory: 64 << 20, Descriptors: 64}, 16, 32 << 20, 16 << 20, 16 << 20, 16 << 20},
	} {
		d := defaults(0, os.Getenv, c.Capacity)
		if d.User.Connections != c.connections || d.User.Pinned != c.user || d.User.Heap != c.heap ||
			d.Connection.Pinned != c.connection || d.Connection.Heap != c.connHeap {
			t.Errorf("%+v: %+v, a connection %+v; want %d, %d, %d, a connection %d, %d", c.Capacity, d.User,
				d.Connection, c.connections, c.user, c.heap, c.connection, c.connHeap)
		}
	}
}
