package main

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/goroce/goroce/docs"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// docsCmd is `goroced docs`.
type docsCmd struct {
	Name string `arg:"" optional:"" complete:"docs" help:"The document; without one all are listed."`
}

// Run lists the documents, or prints one.
func (c *docsCmd) Run(a *app) error {
	if c.Name == "" {
		for _, name := range documents() {
			if _, err := fmt.Fprintf(a.out, "%-14s %s\n", name, titleOf(name)); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := docs.Files.ReadFile(strings.TrimSuffix(path.Base(c.Name), ".md") + ".md")
	if err != nil {
		return driver.Refuse("docs", "name", c.Name, strings.Join(documents(), ", "), ib.ErrInvalid)
	}
	_, err = a.out.Write(text)
	return err
}

// documents returns the names of all documents.
func documents() (names []string) {
	files, _ := fs.Glob(docs.Files, "*.md") // fails for a bad pattern only
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".md"))
	}
	return names
}

// titleOf returns the heading of a document.
func titleOf(name string) string {
	text, _ := docs.Files.ReadFile(name + ".md")
	title, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(title, "# ")
}
