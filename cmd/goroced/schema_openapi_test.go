package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
)

// routes are the requests that the admin socket answers. A name is that of the command that prints the same.
var routes = []struct {
	route, about string
	query        []string
	like         string
	answer, body any // instead of like: nil for a capture, or for none
}{
	{"GET /v1/status", "State of the daemon", nil, "status", nil, nil},
	{"GET /v1/devices", "The devices", nil, "devices", nil, nil},
	{"GET /v1/qps", "Queue pairs of clients", nil, "qp", nil, nil},
	{"GET /v1/mrs", "Memory regions of clients", nil, "mr", nil, nil},
	{"GET /v1/cm", "IDs of clients at the connection manager", nil, "cm", nil, nil},
	{"GET /v1/failures", "The last failures of queue pairs", nil, "why", nil, nil},
	{"GET /v1/why", "The story of a queue pair", []string{"device", "qp"}, "why-qpn", nil, nil},
	{"GET /v1/why/capture", "The packets of a story, or of the next failure",
		[]string{"device", "qp", "next"}, "", nil, nil},
	{"GET /v1/stats", "Counters of the devices", nil, "stat", nil, nil},
	{"GET /v1/capture", "Packets as they pass, until the client goes away",
		[]string{"device", "qp", "peer_qp", "peer"}, "", nil, nil},
	{"GET /v1/faults", "The faults that are injected", []string{"device"}, "", struct {
		Faults []admin.Fault `json:"faults"`
	}{}, nil},
	{"POST /v1/faults", "Adds a fault; the answer has its ID and seed", nil, "", admin.Fault{}, admin.Fault{}},
	{"DELETE /v1/faults", "Removes a fault, or without id all", []string{"device", "id"}, "", struct {
		Removed int `json:"removed"` // how many
	}{}, nil},
}

type object = map[string]any

// openAPI returns the description of the admin socket's HTTP.
func openAPI(t *testing.T, r *jsonschema.Reflector) object {
	t.Helper()
	paths := object{}
	for _, route := range routes {
		method, path, _ := strings.Cut(route.route, " ")
		answer := object{"application/x-pcapng": object{}}
		switch {
		case route.answer != nil:
			answer = content(inside(schemaOf(t, r, "", []any{route.answer})))
		case route.like != "":
			answer = content(object{"$ref": "#/components/schemas/" + route.like})
		}
		operation := object{"summary": route.about, "responses": object{
			"200":     object{"description": "The answer.", "content": answer},
			"default": object{"description": "What was wrong, and what is allowed.", "content": content(errorSchema)},
		}}
		if route.body != nil {
			operation["requestBody"] = object{"required": true,
				"content": content(inside(schemaOf(t, r, "", []any{route.body})))}
		}
		var query []object
		for _, name := range route.query {
			query = append(query, object{"name": name, "in": "query", "schema": object{"type": "string"}})
		}
		if query != nil {
			operation["parameters"] = query
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = operation
	}
	schemas := object{}
	for _, p := range printed {
		for _, route := range routes {
			if route.like == p.name {
				schemas[p.name] = inside(schemaOf(t, r, p.command, p.values))
			}
		}
	}
	return object{"openapi": "3.1.0", "paths": paths, "components": object{"schemas": schemas},
		"info": object{"title": "HTTP on the admin socket of goroced", "version": "1"}}
}

// errorSchema is that of an answer other than 2xx.
var errorSchema = object{"type": "object", "required": []string{"error"},
	"properties": object{"error": object{"type": "string"}}}

func content(schema any) object { return object{"application/json": object{"schema": schema}} }

// inside returns a schema that is a part of a document.
func inside(s *jsonschema.Schema) *jsonschema.Schema {
	s.Version = ""
	return s
}

// TestRoutes: the OpenAPI description has the requests that the documentation of package admin has.
func TestRoutes(t *testing.T) {
	text, err := os.ReadFile("internal/admin/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) +(/v1/[\w/]+)(?:\?(\S+))? `).FindAllStringSubmatch(string(text), -1) {
		documented[m[1]+" "+m[2]] = m[3]
	}
	for _, r := range routes {
		query := strings.Join(r.query, "=&")
		if query != "" {
			query += "="
		}
		if got, ok := documented[r.route]; !ok || got != query {
			t.Errorf("%s: package admin documents %q, %v; want %q", r.route, got, ok, query)
		}
		delete(documented, r.route)
	}
	for route := range documented {
		t.Errorf("%s is missing in routes", route)
	}
}
