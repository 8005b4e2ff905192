// Package manpage writes manual pages, in the man(7) macros of roff, of the commands that kong parses: what they say is
// what the commands' own --help says.
package manpage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Book has what all pages say.
type Book struct {
	Date   string // the day of the release, as YYYY-MM-DD; may be ""
	Source string // the program and its version
	See    string // where there is more to read
	Status string // what exit codes mean, a paragraph
}

// Page is one manual page.
type Page struct {
	Name string // of the file: NAME.1
	Text []byte
}

// Pages returns a page of the application, and one for each of its commands that are not hidden. The page of a command
// has its subcommands.
func (b *Book) Pages(app *kong.Application) []Page {
	root := &page{book: b, name: app.Name}
	root.head(app.Node)
	root.section("SH", "COMMANDS")
	list := []Page{{}}
	for _, command := range shown(app.Node) {
		name := app.Name + "-" + command.Name
		root.item(bold(name)+"(1)", command.Help)
		p := &page{book: b, name: name}
		p.head(command)
		p.describe(command)
		p.tail(bold(app.Name) + "(1)")
		list = append(list, Page{name, []byte(p.String())})
	}
	root.tail(escape(b.See))
	list[0] = Page{app.Name, []byte(root.String())}
	return list
}

// shown returns the commands of a node that its help lists.
func shown(n *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(c *kong.Node) bool { return c.Hidden })
}

// page is a page that is being written.
type page struct {
	strings.Builder
	book  *Book
	name  string
	begun bool // a section that has no text yet
}

// line writes a line of macros, or of text that is escaped.
func (p *page) line(format string, args ...any) {
	fmt.Fprintf(p, format+"\n", args...)
	p.begun = false
}

// section begins a section (SH) or a subsection (SS).
func (p *page) section(macro, title string) {
	p.line(".%s %s", macro, escape(title))
	p.begun = true
}

// item writes a tag, and an indented paragraph about it.
func (p *page) item(tag, text string) {
	p.line(".TP\n%s", tag)
	p.line("%s", escape(text))
}

// head writes everything up to the description.
func (p *page) head(n *kong.Node) {
	summary, description, _ := strings.Cut(n.Help, ". ")
	if n.Detail != "" {
		description = n.Detail
	}
	p.line(".TH %s 1 %q %q", escape(strings.ToUpper(p.name)), p.book.Date, p.book.Source)
	p.section("SH", "NAME")
	p.line(`%s \- %s`, escape(p.name), escape(strings.TrimSuffix(summary, ".")))
	p.section("SH", "SYNOPSIS")
	leaves := []*kong.Node{n}
	if n.Parent != nil && !n.Leaf() {
		leaves = n.Leaves(true)
	}
	for i, leaf := range leaves {
		if i > 0 {
			p.line(".br")
		}
		what := strings.TrimPrefix(leaf.Summary(), leaf.Path())
		p.line("%s %s", bold(leaf.FullPath()), escape(strings.TrimSpace(what)))
	}
	if description != "" {
		p.section("SH", "DESCRIPTION")
		p.paragraphs(description)
	}
}

// describe writes what a command takes, and its subcommands.
func (p *page) describe(n *kong.Node) {
	if n.Leaf() {
		p.values(n, func(title string) { p.section("SH", strings.ToUpper(title)) })
		return
	}
	p.section("SH", "COMMANDS")
	for _, leaf := range n.Leaves(true) {
		p.section("SS", strings.TrimPrefix(leaf.FullPath(), n.Parent.Name+" "))
		p.paragraphs(leaf.Help + "\n\n" + leaf.Detail)
		p.values(leaf, func(title string) { p.line(".PP\n%s", bold(title+":")) })
	}
}

// values writes the arguments and flags of a command, each list under a title.
func (p *page) values(n *kong.Node, begin func(title string)) {
	for i, arg := range n.Positional {
		if i == 0 {
			begin("Arguments")
		}
		p.item(escape(arg.Summary()), arg.Help)
	}
	title := ""
	for _, f := range grouped(n) {
		want := "Options"
		if f.Group != nil {
			want = f.Group.Title + " options"
		}
		if want != title {
			begin(want)
			title = want
		}
		p.item(option(f), f.Help)
	}
}

// grouped returns the flags of a command in the order of its help: those without a group first.
func grouped(n *kong.Node) []*kong.Flag {
	list := slices.Concat(n.AllFlags(true)...)
	first := map[string]int{}
	for i, f := range list {
		if f.Group == nil {
			first[""] = -1
		} else if _, ok := first[f.Group.Title]; !ok {
			first[f.Group.Title] = i
		}
	}
	place := func(f *kong.Flag) int {
		if f.Group == nil {
			return -1
		}
		return first[f.Group.Title]
	}
	slices.SortStableFunc(list, func(a, b *kong.Flag) int { return place(a) - place(b) })
	return list
}

// option returns a flag as its help has it.
func option(f *kong.Flag) string {
	var s string
	if f.Short != 0 {
		s = bold("-"+string(f.Short)) + ", "
	}
	s += bold("--" + f.Name)
	if !f.IsBool() && !f.IsCounter() {
		s += `=\fI` + escape(f.FormatPlaceHolder()) + `\fR`
	}
	return s
}

// tail writes what ends a page.
func (p *page) tail(see string) {
	p.section("SH", "EXIT STATUS")
	p.paragraphs(p.book.Status)
	p.section("SH", "SEE ALSO")
	p.line("%s", see)
}

// paragraphs writes text of go/doc's form: empty lines divide paragraphs, and what is indented stays as it is.
func (p *page) paragraphs(text string) {
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if !p.begun {
			p.line(".PP")
		}
		if strings.HasPrefix(block, " ") || strings.HasPrefix(block, "\t") {
			block = ".EX\n" + escape(block) + "\n.EE"
		} else {
			block = escape(block)
		}
		p.line("%s", block)
	}
}

func bold(s string) string { return `\fB` + escape(s) + `\fR` }

var special = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`)

// escape writes text for roff: characters that would become typographic ones stay what can be typed, and no line begins
// like a request.
func escape(s string) string {
	lines := strings.Split(special.Replace(s), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
