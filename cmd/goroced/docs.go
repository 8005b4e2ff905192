package main

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/completion"
	"github.com/goroce/goroce/docs"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// shelf is a kind of documents in package docs, which a command lists and prints.
type shelf struct {
	command  string
	dir, ext string                   // of the files
	title    func(text []byte) string // of a document
}

// manuals is the shelf of `goroced docs`.
var manuals = shelf{command: "docs", dir: ".", ext: ".md", title: heading}

// docsCmd is `goroced docs`.
type docsCmd struct {
	Name string `arg:"" optional:"" complete:"docs" help:"The document; without one all are listed."`
}

// Run lists the documents, or prints one.
func (c *docsCmd) Run(a *app) error { return manuals.show(a, c.Name) }

// heading returns the heading of a text in Markdown.
func heading(text []byte) string {
	title, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(title, "# ")
}

// show prints a document, or without a name lists all.
func (s *shelf) show(a *app, name string) error {
	if name == "" {
		return s.list(a)
	}
	text, err := s.read(strings.TrimSuffix(name, s.ext))
	if err != nil {
		return driver.Refuse(s.command, "name", name, strings.Join(s.names(), ", "), ib.ErrInvalid)
	}
	_, err = a.out.Write(text)
	return err
}

// list prints the names of all documents and their titles.
func (s *shelf) list(a *app) error {
	for _, c := range s.candidates() {
		if _, err := fmt.Fprintf(a.out, "%-14s %s\n", c.Word, c.Help); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the documents for the completion of a name.
func (s *shelf) candidates() (list []completion.Candidate) {
	for _, name := range s.names() {
		text, _ := s.read(name) // it is embedded
		list = append(list, completion.Candidate{Word: name, Help: s.title(text)})
	}
	return list
}

// file returns where a document is in package docs.
func (s *shelf) file(name string) string { return path.Join(s.dir, path.Base(name)+s.ext) }

// read returns a document.
func (s *shelf) read(name string) ([]byte, error) { return docs.Files.ReadFile(s.file(name)) }

// names returns the names of all documents, sorted.
func (s *shelf) names() (names []string) {
	files, _ := fs.Glob(docs.Files, s.file("*")) // fails for a bad pattern only
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), s.ext))
	}
	slices.Sort(names) // the files are, with their extensions
	return names
}
