package main

import "encoding/json"

// schemaCmd is `goroced schema`.
type schemaCmd struct {
	Name string `arg:"" optional:"" complete:"schemas" help:"The schema; without one all are listed."`
}

// Help is printed under the flags.
func (*schemaCmd) Help() string {
	return "The schemas are of JSON Schema 2020-12, openapi is of OpenAPI 3.1. Later versions of goroced may " +
		"print more fields, and the schemas allow them; fields that are required stay."
}

// schemas is the shelf of `goroced schema`.
var schemas = shelf{command: "schema", dir: "schemas", ext: ".json", title: schemaTitle}

// Run lists the schemas, or prints one.
func (c *schemaCmd) Run(a *app) error { return schemas.show(a, c.Name) }

// schemaTitle returns what a schema describes.
func schemaTitle(text []byte) string {
	var s struct {
		Title string
		Info  struct{ Title string } // of OpenAPI
	}
	_ = json.Unmarshal(text, &s) // a test reads them all
	return s.Title + s.Info.Title
}
