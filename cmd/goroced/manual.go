package main

import (
	"slices"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/manpage"
)

// use is a file or a variable of the environment, and which commands use it: those with one of the flags, or of one of
// the names; all if there are none.
type use struct {
	term, text      string
	flags, commands []string
}

// files are those that commands read or write without being told.
var files = []use{
	{term: "/etc/goroce/goroced.toml, ~/.config/goroce/goroced.toml",
		text:  "Configuration of the daemon, of root's and of another user's; goroced.toml(5) describes it.",
		flags: []string{"config"}, commands: []string{"config", "run"}},
	{term: "/run/goroce/goroced.sock",
		text: "Socket of root's daemon, for clients. That of another user's is goroced.sock in " +
			"$XDG_RUNTIME_DIR/goroce, or in /tmp/goroce-UID if there is no such directory that is the user's alone.",
		flags: []string{"socket"}, commands: []string{"run"}},
	{term: "/run/goroce/goroced-admin.sock",
		text:  "Socket for looking at the daemon, beside the other.",
		flags: []string{"admin"}},
	{term: "goroced.sock.d",
		text:     "Directory beside the socket with what programs in C find in place of /sys/class/infiniband.",
		commands: []string{"serve", "run", "env"}},
	{term: "goroced.log",
		text:     "Log of a daemon that was started by goroced run, beside its socket.",
		commands: []string{"run"}},
	{term: "~/.cache/goroce",
		text: "Libraries for programs in C that were built with cc. Those of a package are in ../lib/goroce " +
			"beside the program.",
		commands: []string{"run", "env"}},
	{term: "perftest_out.json",
		text:  "The report, if --out_json names no file.",
		flags: []string{"out_json"}},
	{term: "goroced-report.txt",
		text:     "The report, if -o names no file.",
		commands: []string{"bugreport"}},
}

// variables are those of the environment.
var variables = []use{
	{term: "GOROCED_SOCKET",
		text:  "Socket of the daemon, in place of the usual ones. It leads to the daemon's admin socket, too.",
		flags: []string{"socket", "admin"}, commands: []string{"run"}},
	{term: "GOROCED_ADMIN",
		text:  "Admin socket of the daemon, in place of the usual ones.",
		flags: []string{"admin"}},
	{term: "GOROCED_CONFIG",
		text:  "Configuration file, in place of the usual one.",
		flags: []string{"config"}, commands: []string{"config", "run"}},
	{term: "GOROCED_LIMITS_USER_QPS and others",
		text:  "A setting: GOROCED_ and its key, with _ for each dot. It overrides the file.",
		flags: []string{"config"}, commands: []string{"config", "run"}},
	{term: "XDG_RUNTIME_DIR, XDG_CONFIG_HOME, HOME",
		text:  "Where an ordinary user's sockets and configuration are.",
		flags: []string{"socket", "admin", "config"}, commands: []string{"run", "config"}},
	{term: "GOROCE_LIB",
		text:     "Directory of the libraries for programs in C.",
		commands: []string{"run", "env"}},
	{term: "GOROCE_GID",
		text:     "Address whose index in the GID table perftest and the ibv_*_pingpong are given, if they have none.",
		commands: []string{"run"}},
	{term: "CC",
		text:     "Compiler that builds them if they are not there.",
		commands: []string{"run", "env"}},
	{term: "GOROCE_DEBUG",
		text:     "1 lets the library say what was refused, and why.",
		commands: []string{"run", "env"}},
	{term: "GOROCE_MR",
		text: "process leaves the memory that a program registers where it is, which is slower. remap puts it into a " +
			"memfd although other threads may store into it at that moment, which then is lost.",
		commands: []string{"run", "env"}},
	{term: "SOURCE_DATE_EPOCH",
		text:     "The date of the pages, in seconds since 1970.",
		commands: []string{"man"}},
	{term: "LC_ALL, LC_CTYPE, LANG",
		text: "Output has characters beyond ASCII if the first of them that is set names UTF-8."},
	{term: "NO_COLOR, TERM",
		text: "Terminals get colours unless NO_COLOR is set, or TERM is dumb or not set."},
}

// usesOf returns those of the uses that are a command's; the program, nil, has all.
func usesOf(all []use) func(*kong.Node) []manpage.Item {
	return func(n *kong.Node) (list []manpage.Item) {
		for _, u := range all {
			if n == nil || len(u.flags)+len(u.commands) == 0 || slices.Contains(u.commands,
				n.Name) || hasFlag(n, u.flags) {
				list = append(list, manpage.Item{Term: u.term, Text: u.text})
			}
		}
		return list
	}
}

// hasFlag reports whether a command, or one below it, has one of the flags.
func hasFlag(n *kong.Node, names []string) bool {
	return slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return slices.Contains(names, f.Name) }) ||
		slices.ContainsFunc(n.Children, func(c *kong.Node) bool { return hasFlag(c, names) })
}
