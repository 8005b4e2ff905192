package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/goroce/goroce/docs"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// schemaCmd is `goroced schema`.
type schemaCmd struct {
	Name string `arg:"" optional:"" complete:"schemas" help:"The schema; without one all are listed."`
}

// Help is printed under the flags.
func (*schemaCmd) Help() string {
	return "The schemas are of JSON Schema 2020-12, openapi is of OpenAPI 3.1. Later versions of goroced may " +
		"print more fields, and the schemas allow them; fields that are required stay."
}

// Run lists the schemas, or prints one.
func (c *schemaCmd) Run(a *app) error {
	if c.Name == "" {
		for _, name := range schemas() {
			if _, err := fmt.Fprintf(a.out, "%-14s %s\n", name, schemaTitle(name)); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := docs.Files.ReadFile(schemaFile(c.Name))
	if err != nil {
		return driver.Refuse("schema", "name", c.Name, strings.Join(schemas(), ", "), ib.ErrInvalid)
	}
	_, err = a.out.Write(text)
	return err
}

// schemaFile returns where a schema is in package docs.
func schemaFile(name string) string { return "schemas/" + path.Base(name) + ".json" }

// schemas returns the names of all schemas.
func schemas() (names []string) {
	files, _ := fs.Glob(docs.Files, schemaFile("*")) // fails for a bad pattern only
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".json"))
	}
	slices.Sort(names)
	return names
}

// schemaTitle returns what a schema describes.
func schemaTitle(name string) string {
	var s struct {
		Title string
		Info  struct{ Title string } // of OpenAPI
	}
	text, _ := docs.Files.ReadFile(schemaFile(name))
	_ = json.Unmarshal(text, &s) // a test reads them all
	return s.Title + s.Info.Title
}
