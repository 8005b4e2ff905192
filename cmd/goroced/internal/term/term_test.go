package term

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func env(vars ...string) func(string) string {
	return func(name string) string {
		for _, v := range vars {
			if key, value, _ := strings.Cut(v, "="); key == name {
				return value
			}
		}
		return ""
	}
}

func TestCharset(t *testing.T) {
	for _, c := range []struct {
		env  string
		goos string
		want bool
	}{
		{"", "linux", false},
		{"", "windows", true},
		{"LANG=C.UTF-8", "linux", true},
		{"LANG=en_US.utf8", "linux", true},
		{"LANG=de_DE.ISO-8859-1", "linux", false},
		{"LANG=C.UTF-8 LC_CTYPE=C", "linux", false},
		{"LANG=C LC_CTYPE=C.UTF-8", "linux", true},
		{"LANG=C.UTF-8 LC_ALL=POSIX", "linux", false},
		{"LC_ALL=C.UTF-8 LC_CTYPE=C", "linux", true},
	} {
		if got := isUTF8(env(strings.Fields(c.env)...), c.goos); got != c.want {
			t.Errorf("%s on %s: UTF-8 %v, want %v", c.env, c.goos, got, c.want)
		}
	}
}

func TestColor(t *testing.T) {
	for _, c := range []struct {
		env  string
		goos string
		want bool
	}{
		{"TERM=xterm", "linux", true},
		{"TERM=xterm NO_COLOR=1", "linux", false},
		{"TERM=xterm NO_COLOR=", "linux", true},
		{"TERM=dumb", "linux", false},
		{"", "linux", false},
		{"", "windows", false},
		{"WT_SESSION=1", "windows", true},
	} {
		if got := hasColor(env(strings.Fields(c.env)...), c.goos); got != c.want {
			t.Errorf("%s on %s: colour %v, want %v", c.env, c.goos, got, c.want)
		}
	}
	if s := (Terminal{Color: true}).Paint("x", Problem); s != "\x1b[1;31mx\x1b[0m" {
		t.Errorf("%q, want %q", s, "\x1b[1;31mx\x1b[0m")
	}
	if s := (Terminal{}).Paint("x", Problem); s != "x" {
		t.Errorf("%q, want %q", s, "x")
	}
}

// TestNoTerminal: files and pipes are not coloured, and 80 columns wide.
func TestNoTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, out := range []interface{ Write([]byte) (int, error) }{w, &bytes.Buffer{}} {
		got := Of(out, env("TERM=xterm", "LANG=C.UTF-8"))
		if got != (Terminal{}) || got.Columns() != 80 {
			t.Errorf("%+v, want %+v, which has 80 columns", got, Terminal{})
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Terminal{Width: 30}.Hang("ok  ", "eins zwei drei vier fünf sechs"),
			"ok  eins zwei drei vier fünf\n    sechs"},
		{Terminal{Width: 30}.Hang("", ""), ""},
		{Terminal{Width: 10}.Hang("        ", "a bcdefghijklmnopqrst uvw"),
			"        a\n        bcdefghijklmnopqrst\n        uvw"},
		{Terminal{Width: 30}.Hang("", strings.Repeat("x", 35)), strings.Repeat("x", 30) + "\nxxxxx"},
		{Terminal{Width: 30}.Command("  ", "sudo sysctl -w a=1 b=2 cccccc=3 d"),
			"  sudo sysctl -w a=1 b=2 \\\n  cccccc=3 d"},
		{Terminal{Width: 30}.Command("  ", "short"), "  short"},
		{Terminal{Width: 10}.Command("  ", "echo 'a b c d e f g h'"), "  echo 'a b c d e f g h'"},
	} {
		if c.got != c.want {
			t.Errorf("got\n%s\nwant\n%s", c.got, c.want)
		}
	}
}

// TestMessage: a line that is too wide is wrapped, and its commands have lines of their own.
func TestMessage(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"waiting: `a -b`", "waiting: `a -b`"},
		{"waiting for a client on port 7174: `goroced rping -c -a ADDR -p 7174`, or `rping -c`; with the same options",
			"waiting for a client on port\n  7174:\n    goroced rping -c -a ADDR -p 7174\n  or\n    rping -c\n" +
				"  with the same options"},
		{"`goroced serve`, and then `goroced rping -s --daemon`",
			"  goroced serve\n  and then\n    goroced rping -s --daemon"},
		{"one quote ` alone, in a line that is wrapped", "one quote ` alone, in a line\n  that is wrapped"},
	} {
		if got := (Terminal{Width: 30}).Message(c.line); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
	var out bytes.Buffer
	m := &messages{&out, Terminal{Real: true, Width: 30}}
	line := "a line of more than thirty letters\n"
	if n, err := m.Write([]byte("short\n" + line)); n != len("short\n"+line) || err != nil ||
		out.String() != "short\na line of more than thirty\n  letters\n" {
		t.Errorf("%d bytes, %v: %s, want all %d, the line broken", n, err, out.String(), len("short\n"+line))
	}
	if w := Messages(&out, env()); w != &out {
		t.Error("what is no terminal is wrapped")
	}
}
