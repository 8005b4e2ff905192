package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xeipuuv/gojsonschema"
)

// TestSBOM: the list of this test program is valid by CycloneDX's own schema, and has the modules that it imports.
func TestSBOM(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &release{source: &source{version: "v0.1.0", commit: "372af55aa3650a0922133ac14ad1a54ee60a8f3f",
		date: time.Unix(1795537563, 0).UTC()}}
	info, err := r.info(program)
	if err != nil {
		t.Fatal(err)
	}
	bom, err := r.sbom(info)
	if err != nil {
		t.Fatal(err)
	}
	result, err := schema(t).Validate(gojsonschema.NewBytesLoader(bom))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range result.Errors() {
		t.Error(e)
	}
	var got struct {
		Metadata   struct{ Timestamp string }
		Components []struct {
			Purl   string
			Hashes []struct{ Content string }
		}
	}
	if err := json.Unmarshal(bom, &got); err != nil {
		t.Fatal(err)
	}
	hashed := 0
	for _, c := range got.Components {
		if strings.HasPrefix(c.Purl, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v0.") && len(c.Hashes) == 1 {
			hashed++
		}
	}
	if hashed != 1 || !strings.HasPrefix(got.Components[0].Purl, "pkg:golang/std@1.") ||
		got.Metadata.Timestamp != "2026-11-24T16:26:03Z" {
		t.Errorf("%s, want the standard library, a hash, the time of the commit", bom)
	}
}

// schema reads CycloneDX's schema, which its library for Go comes with.
func schema(t *testing.T) *gojsonschema.Schema {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) gojsonschema.JSONLoader {
		name = filepath.Join(strings.TrimSpace(string(dir)), "schema", name)
		return gojsonschema.NewReferenceLoader("file://" + name)
	}
	loader := gojsonschema.NewSchemaLoader()
	for id, name := range map[string]string{"spdx.schema.json": "spdx.schema.json",
		"jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		if err := loader.AddSchema("http://cyclonedx.org/schema/"+id, file(name)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := loader.Compile(file("bom-1.6.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
