// Package term knows what the terminal that a command prints to can do: its width, colours and character set. It wraps
// and colours text accordingly.
package term

import (
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/term"
)

// DefaultWidth is the width, in columns, where none is known: of files and pipes.
const DefaultWidth = 80

// Terminal is what a command prints to. The zero value is a file or a pipe of DefaultWidth columns and UTF-8.
type Terminal struct {
	Real  bool // a terminal, not a file or a pipe
	Width int  // in columns; 0 stands for DefaultWidth
	Color bool
	ASCII bool // has no characters beyond ASCII
}

// Of describes what w prints to, for a program in the environment that getenv returns.
func Of(w io.Writer, getenv func(string) string) Terminal {
	t := Terminal{ASCII: !isUTF8(getenv, runtime.GOOS)}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return t
	}
	t.Real, t.Color = true, hasColor(getenv, runtime.GOOS)
	if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		t.Width = width
	}
	return t
}

// isUTF8 reports whether the locale has UTF-8: POSIX 8.2 says in which order the variables count, and that without any
// of them the locale is C. Windows has no such variables, and Go's runtime writes UTF-16 to its consoles.
func isUTF8(getenv func(string) string, goos string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(getenv(name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return goos == "windows"
}

// hasColor reports whether a terminal understands colours, and the user wants them (https://no-color.org). Of Windows'
// consoles those that set one of the variables are sure to understand.
func hasColor(getenv func(string) string, goos string) bool {
	kind := getenv("TERM")
	if getenv("NO_COLOR") != "" || kind == "dumb" {
		return false
	}
	return kind != "" || goos == "windows" && getenv("WT_SESSION") != ""
}

// Columns returns the width.
func (t Terminal) Columns() int {
	if t.Width <= 0 {
		return DefaultWidth
	}
	return t.Width
}

// Style is how text is to look.
type Style string

// Styles, as ECMA-48 SGR parameters.
const (
	Heading Style = "1"    // bold
	Good    Style = "32"   // green
	Warning Style = "33"   // yellow
	Problem Style = "1;31" // bold red
)

// Paint returns s in a style, if the terminal has colours. It must be applied after wrapping, for its escape sequences
// would count as text.
func (t Terminal) Paint(s string, style Style) string {
	if !t.Color || s == "" {
		return s
	}
	return "\x1b[" + string(style) + "m" + s + "\x1b[0m"
}
