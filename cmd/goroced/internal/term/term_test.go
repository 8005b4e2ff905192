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
		t.Errorf("%q", s)
	}
	if s := (Terminal{}).Paint("x", Problem); s != "x" {
		t.Errorf("%q", s)
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
			t.Errorf("%+v", got)
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
