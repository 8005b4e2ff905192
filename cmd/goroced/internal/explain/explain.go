package explain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/similar"
	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/qp/script"
)

// groups are the groups of rules, in the order in which to read them.
var groups = []string{
	"packets", "connecting", "sending", "acknowledging", "loss", "READ, atomics, FLUSH", "flow control", "errors",
	"states", "memory", "windows", "shared receives", "other services",
}

// List writes the names of all rules, by group, with a line about each.
func List(w io.Writer, t term.Terminal) error {
	all, err := lessons()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	list(out, t, all)
	return out.Flush()
}

// Rules returns the titles of all rules by their names.
func Rules() map[string]string {
	titles := map[string]string{}
	all, _ := lessons() // tests load them all
	for _, l := range all {
		titles[l.name] = l.title
	}
	return titles
}

// list writes the names and titles of lessons by group.
func list(out io.Writer, t term.Terminal, lessons []lesson) {
	first := true
	for _, group := range groups {
		of := slices.DeleteFunc(slices.Clone(lessons), func(l lesson) bool { return l.group != group })
		if len(of) == 0 {
			continue
		}
		if !first {
			fmt.Fprintln(out)
		}
		first = false
		fmt.Fprintln(out, t.Paint(group+":", term.Heading))
		for _, l := range of {
			title := l.title
			if l.rule != "IBTA" {
				title += " [" + l.rule + "]"
			}
			fmt.Fprintln(out, t.Hang(fmt.Sprintf("  %-22s ", l.name), title))
		}
	}
}

// Rule explains what somebody asks for: the rule of that name; otherwise the only one with these words in it; otherwise
// it lists those that have them. The error is an *UnknownError if there is none, and a *script.Failure if the protocol
// behaves differently from a script.
func Rule(w io.Writer, words string, t term.Terminal) error {
	all, err := lessons()
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(l lesson) bool { return l.name == words }); i >= 0 {
		return all[i].writeWithNext(w, t, all)
	}
	about, mention := find(all, words)
	if letters(words) == "" || len(about)+len(mention) == 0 {
		return unknown(all, words)
	}
	if len(about) == 0 {
		about, mention = mention, nil
	}
	if len(about) == 1 && mention == nil {
		return about[0].writeWithNext(w, t, all)
	}
	out := bufio.NewWriter(w)
	list(out, t, about)
	if len(mention) > 0 {
		var names []string
		for _, l := range mention {
			names = append(names, l.name)
		}
		fmt.Fprint(out, "\n", t.Hang("Mentioned also in: ", strings.Join(names, ", ")), "\n")
	}
	return out.Flush()
}

func unknown(all []lesson, name string) error {
	var names []string
	for _, l := range all {
		names = append(names, l.name)
	}
	return &UnknownError{Kind: "rule", Name: name, Closest: similar.Closest(name, names, mostClose)}
}

// Source writes the script of a rule, which an own one may begin as. The error is an *UnknownError if there is none.
func Source(w io.Writer, name string) error {
	text, err := script.Source(name)
	if err != nil {
		all, err := lessons()
		if err != nil {
			return err
		}
		return unknown(all, name)
	}
	_, err = io.WriteString(w, text)
	return err
}

// IsFile reports whether somebody asks for a script of their own, not for a rule: its name has a folder or ends with
// .txt.
func IsFile(name string) bool {
	return strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".txt")
}

// File runs a script of the language of qp/testdata. If a claim in it is wrong, File writes what happened until then
// and the lines around that one, and returns the *script.Failure.
func File(w io.Writer, path string, t term.Terminal) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := script.Parse(path, string(text))
	if err == nil {
		l := ofScript(s)
		err = l.write(w, t)
	}
	var f *script.Failure
	if errors.As(err, &f) {
		excerpt(w, t, string(text), f.Line)
	}
	return err
}

// excerpt writes the lines of a text around one, which it marks.
func excerpt(w io.Writer, t term.Terminal, text string, at int) {
	const around = 3
	for i, line := range strings.Split(text, "\n") {
		n := i + 1
		if n < at-around || n > at+around || line == "" && n != at {
			continue
		}
		mark := " "
		if n == at {
			mark = ">"
		}
		line = t.Hang(fmt.Sprintf("%s %4d  ", mark, n), printable(line))
		if n == at {
			line = t.Paint(line, term.Problem)
		}
		fmt.Fprintln(w, line)
	}
}

// printable replaces characters that could move the cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return ' '
		}
		return r
	}, s)
}
