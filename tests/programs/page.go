//go:build linux

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// page writes docs/programs.md, of which all but the versions follows from the table: the command writes it only if
// each row came out as the table says.
func page(rows []row, versions map[string]string) string {
	var s strings.Builder
	work, not := counts(rows)
	fmt.Fprintf(&s, `# Programs that others wrote

%d programs and suites of %d families run over goroce as they come from Debian 12, unchanged; %d do not, for the reason
given. The command

    go run ./tests/programs -install -o docs/programs.md

writes this page, as root on Debian 12, if each row came out as the table in [tests/programs](../tests/programs) says;
without -install it takes the programs that are there. -list shows the rows, -run REGEXP runs those that match, -where
one or two chooses the place. Each command stands behind `+"`goroced run --`"+` ([dropin.md](dropin.md)), and a semicolon is
between a server and its client; a server's client without a line of its own is the same command with the server's
address behind it. One host: both over one daemon. Two: each in a network namespace with a daemon of its own, MTU 1500.
Programs and daemons are an ordinary user's. A row is ok if both programs end with success, the client says what it
should, and nothing of them is left in the daemons. What does not work has the reason, and whose it is.
`, work, len(families(rows)), not)
	for _, f := range families(rows) {
		fmt.Fprintf(&s, "\n## %s\n\n%s\n\n| program | command | one host | two hosts |\n| --- | --- | --- | --- |\n",
			f.name, origin(f, versions))
		last := ""
		for _, r := range f.rows {
			r = complete(f, r)
			name := r.program
			if name == last {
				name = ""
			}
			last = r.program
			fmt.Fprintf(&s, "| %s | `%s` | %s | %s |\n", name, strings.ReplaceAll(r.name(), "|", `\|`), r.cell(oneHost),
				r.cell(twoHosts))
		}
	}
	return s.String()
}

// cell is what the page says of a row at a place.
func (r *row) cell(where place) string {
	switch {
	case !slices.Contains(r.places(), where):
		return ""
	case r.fails == "":
		return "ok"
	}
	return fmt.Sprintf("no: %s (%s)", r.fails, r.whose)
}

// counts returns how many programs, servers and clients, work in one row at least, and how many do not.
func counts(rows []row) (work, not int) {
	names := map[string]bool{}
	for _, r := range rows {
		list := strings.Split(r.program, ", ")
		if r.server != "" && r.program == program(r.client) {
			list = append(list, program(r.server))
		}
		for _, name := range list {
			names[name] = names[name] || r.fails == ""
		}
	}
	for _, works := range names {
		if works {
			work++
		} else {
			not++
		}
	}
	return work, not
}

// origin says where a family comes from.
func origin(f *family, versions map[string]string) string {
	var list []string
	for _, name := range f.from {
		list = append(list, fmt.Sprintf("`%s` %s", name, versions[name]))
	}
	text := "Debian:\n" + strings.Join(list, ",\n") + "."
	return strings.TrimSpace(text + "\n" + f.also)
}

// versionsOf reads the versions of packages that a page has.
func versionsOf(page string) map[string]string {
	list := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^`([^`]+)` ([^ ,|\n]*[^ ,.|\n])[,.]$").FindAllStringSubmatch(page, -1) {
		list[m[1]] = m[2]
	}
	return list
}
