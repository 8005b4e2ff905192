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

	// Examples is the line that begins the examples in the help of a command; they end it.
	Examples string
	// Files and Environment return what a command, or nil for the program, uses.
	Files, Environment func(command *kong.Node) []Item
}

// Item is a term, and what it means.
type Item struct{ Term, Text string }

// Part is a section of a page that is not of a command: a text, then terms.
type Part struct {
	Title, Text string
	Items       []Item
}

// Page is one manual page.
type Page struct {
	Name    string // of the file: NAME.SECTION
	Section int
	Text    []byte
}

// Pages returns a page of the application, and one for each of its commands that are not hidden. The page of a command
// has its subcommands.
func (b *Book) Pages(app *kong.Application) []Page {
	root := &page{book: b, name: app.Name}
	root.head(app.Node)
	root.section("SH", "COMMANDS")
	root.gather(app.Node)
	list := []Page{{}}
	for _, command := range shown(app.Node) {
		name := app.Name + "-" + command.Name
		root.item(bold(name)+"(1)", command.Help)
		p := &page{book: b, name: name}
		p.head(command)
		p.describe(command)
		p.gather(command)
		p.tail(command, bold(app.Name)+"(1)")
		list = append(list, Page{name, 1, []byte(p.String())})
	}
	root.tail(nil, escape(b.See))
	list[0] = Page{app.Name, 1, []byte(root.String())}
	return list
}

// Reference returns a page of another section that has the given parts.
func (b *Book) Reference(name string, section int, summary, see string, parts []Part) Page {
	p := &page{book: b, name: name}
	p.title(section, summary)
	for _, part := range parts {
		p.section("SH", part.Title)
		p.terms(part.Text, part.Items)
	}
	p.section("SH", "SEE ALSO")
	p.line("%s", escape(see))
	return Page{name, section, []byte(p.String())}
}

// shown returns the commands of a node that its help lists.
func shown(n *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(c *kong.Node) bool { return c.Hidden })
}

// page is a page that is being written.
type page struct {
	strings.Builder
	book     *Book
	name     string
	begun    bool     // a section that has no text yet
	examples []string // blocks of lines
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
	if detail, _ := p.split(n); detail != "" {
		description = detail
	}
	p.title(1, summary)
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

// title writes what a page begins with.
func (p *page) title(section int, summary string) {
	p.line(".TH %s %d %q %q", escape(strings.ToUpper(p.name)), section, p.book.Date, p.book.Source)
	p.section("SH", "NAME")
	p.line(`%s \- %s`, escape(p.name), escape(strings.TrimSuffix(summary, ".")))
}

// split returns the help of a command without its examples, and these.
func (p *page) split(n *kong.Node) (detail, examples string) {
	detail, examples, _ = strings.Cut(n.Detail, p.book.Examples+"\n\n")
	return strings.TrimSpace(detail), strings.TrimRight(examples, "\n")
}

// gather collects the examples of a command and of those below it.
func (p *page) gather(n *kong.Node) {
	if _, examples := p.split(n); examples != "" {
		p.examples = append(p.examples, examples)
	}
	if n.Type == kong.CommandNode {
		for _, c := range shown(n) {
			p.gather(c)
		}
	}
}

// terms writes a text and a list, either of which may be empty.
func (p *page) terms(text string, list []Item) {
	if text != "" {
		p.paragraphs(text)
	}
	for _, i := range list {
		p.item(bold(i.Term), i.Text)
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
		detail, _ := p.split(leaf)
		p.paragraphs(leaf.Help + "\n\n" + detail)
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

// tail writes what ends the page of a command, or of the program.
func (p *page) tail(command *kong.Node, see string) {
	p.section("SH", "EXIT STATUS")
	p.paragraphs(p.book.Status)
	for _, s := range []struct {
		title string
		list  []Item
	}{{"ENVIRONMENT", p.book.Environment(command)}, {"FILES", p.book.Files(command)}} {
		if len(s.list) > 0 {
			p.section("SH", s.title)
			p.terms("", s.list)
		}
	}
	if len(p.examples) > 0 {
		p.section("SH", "EXAMPLES")
		p.paragraphs(strings.Join(p.examples, "\n\n"))
	}
	p.section("SH", "SEE ALSO")
	p.line("%s", see)
}

// paragraphs writes text of go/doc's form: empty lines divide paragraphs, what is indented stays as it is, and "- "
// begins an item.
func (p *page) paragraphs(text string) {
	for _, block := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		item, isItem := strings.CutPrefix(block, "- ")
		if isItem {
			block = item
			p.line(".IP \\(bu 2")
		} else if !p.begun {
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
