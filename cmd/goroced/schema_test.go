package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/cmd/goroced/internal/demo"
	"github.com/goroce/goroce/cmd/goroced/internal/devinfo"
	"github.com/goroce/goroce/cmd/goroced/internal/doctor"
	"github.com/goroce/goroce/cmd/goroced/internal/perf"
	"github.com/goroce/goroce/cmd/goroced/internal/top"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/require"
)

var updateSchemas = flag.Bool("schemas.update", false, "write docs/schemas from the types that are printed")

// output is what a command prints as JSON.
type output struct {
	name, command string
	values        []any
}

// printed has a value of each type that a command prints as JSON; of several types, one of which each line has.
var printed = []output{
	{"config-show", "goroced config show --json", []any{[]config.Setting{}}},
	{"decode", "goroced decode --json FILE, each line", []any{decode.PacketLine{}, decode.SummaryLine{}}},
	{"cm", "goroced cm --json", []any{[]server.CMInfo{}}},
	{"demo", "goroced demo --json", []any{demo.Report{}}},
	{"devices", "goroced devices --json", []any{[]admin.Device{}}},
	{"devinfo", "goroced devinfo --json", []any{[]devinfo.Info{}}},
	{"devinfo-list", "goroced devinfo --list --json", []any{[]devinfo.Found{}}},
	{"doctor", "goroced doctor --json", []any{struct {
		OK bool `json:"ok"` // nothing keeps RDMA from working
		*doctor.Report
	}{}}},
	{"fault-list", "goroced fault list --json", []any{[]admin.Fault{}}},
	{"mr", "goroced mr --json", []any{[]server.MRInfo{}}},
	{"perf", "goroced perf --out_json=-", []any{perf.Report{}}},
	{"qp", "goroced qp --json", []any{[]server.QPInfo{}}},
	{"stat", "goroced stat --json", []any{map[string]admin.Counters{}}},
	{"status", "goroced status --json", []any{admin.Status{}}},
	{"top", "goroced top --json, each line", []any{[]top.Row{}}},
	{"version", "goroced version --json", []any{version{}}},
	{"why", "goroced why --json", []any{[]server.FailureInfo{}}},
	{"why-qpn", "goroced why --json QPN", []any{[]admin.Why{}}},
}

// commented are the packages whose comments of fields are descriptions in the schemas.
var commented = []string{"internal/admin", "internal/config", "internal/decode", "internal/demo", "internal/devinfo",
	"internal/doctor", "internal/perf", "internal/top", "../../roce/daemon/server", "../../roce/trace"}

// schemaOf returns the schema of what a command prints. A strict one allows no other fields.
func schemaOf(t *testing.T, r *jsonschema.Reflector, title string, values []any) *jsonschema.Schema {
	t.Helper()
	s := r.Reflect(values[0])
	if len(values) > 1 {
		s = &jsonschema.Schema{Version: jsonschema.Version}
		for _, v := range values {
			one := r.Reflect(v)
			one.Version = ""
			s.OneOf = append(s.OneOf, one)
		}
	}
	s.Title = title
	return s
}

// newReflector returns one that makes schemas as encoding/json prints values. With strict schemas fields that they do
// not have are errors.
func newReflector(t *testing.T, strict bool) *jsonschema.Reflector {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true,
		AllowAdditionalProperties: !strict}
	text := reflect.TypeFor[encoding.TextMarshaler]()
	r.Mapper = func(kind reflect.Type) *jsonschema.Schema {
		switch {
		case kind == reflect.TypeFor[admin.Counters]():
			return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "integer"}}
		case kind == reflect.TypeFor[perf.Row](): // whose pointers are those of one kind of test
			s := (&jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true,
				CommentMap: r.CommentMap, AllowAdditionalProperties: !strict}).ReflectFromType(kind)
			s.Version, s.Required = "", []string{"MsgSize", "n_iterations"}
			return s
		case kind.PkgPath() != "time" && kind.Implements(text):
			return &jsonschema.Schema{Type: "string"}
		}
		return nil
	}
	for _, dir := range commented {
		if err := r.AddGoComments("github.com/goroce/goroce/cmd/goroced", dir); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestSchemas: docs/schemas has what the types say; -schemas.update writes it.
func TestSchemas(t *testing.T) {
	r := newReflector(t, false)
	var names []string
	for _, p := range printed {
		names = append(names, p.name)
		wantSchema(t, p.name, schemaOf(t, r, p.command, p.values))
	}
	names = append(names, "openapi")
	wantSchema(t, "openapi", openAPI(t, r))
	slices.Sort(names)
	if *updateSchemas {
		return
	}
	if slices.Sort(names); !slices.Equal(schemas.names(), names) {
		t.Errorf("got schemas %v, want %v", schemas.names(), names)
	}
	complains(t, "schema qps", exitUsage, "allowed: cm, config-show")
}

// wantSchema checks that docs/schemas has a schema, or writes it there.
func wantSchema(t *testing.T, name string, schema any) {
	t.Helper()
	var want bytes.Buffer
	if err := writeSchema(&want, schema); err != nil {
		t.Fatal(err)
	}
	if *updateSchemas {
		if err := os.WriteFile("../../docs/"+schemas.file(name), want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := success(t, "schema", name); got != want.String() {
		t.Errorf("docs/%s is not of the types: `go test ./cmd/goroced -run TestSchemas -schemas.update`\n"+
			"got\n%s\nwant\n%s", schemas.file(name), got, &want)
	}
}

// writeSchema writes a schema as docs/schemas has it.
func writeSchema(w io.Writer, s any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// TestSchemasOfOutputs: what the commands print is valid by their schemas, and has no field that these lack.
func TestSchemasOfOutputs(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	capture, qpn := failure(t, d)
	d.waits(t)
	listener, _ := serve(t, with("rping -s -a "+d.addr, d.client)...)
	t.Cleanup(func() { _ = listener.cmd.Process.Kill() })
	success(t, with("fault add delay --delay 1ms -p 0.5 --seed 7 --peer 192.0.2.1", d.admin)...)
	file := configFile(t, "[[device]]\naddresses = [\"127.0.0.9\"]\n")
	for _, c := range []struct {
		name, args string
		flags      []string
	}{
		{"cm", "cm --json", d.admin},
		{"config-show", "config show --json --config " + file, nil},
		{"decode", "decode --json " + capture, nil},
		{"demo", "demo --json --memory", nil},
		{"devices", "devices --json", d.admin},
		{"devinfo", "devinfo --json", d.client},
		{"devinfo-list", "devinfo --list --json", nil},
		{"doctor", "doctor --json 127.0.0.1", nil},
		{"fault-list", "fault list --json", d.admin},
		{"mr", "mr --json", d.admin},
		{"qp", "qp --json", d.admin},
		{"stat", "stat --json", d.admin},
		{"stat", "stat --json --watch -i 10ms", d.admin},
		{"status", "status --json", d.admin},
		{"status", "status --json --watch -i 10ms", d.admin},
		{"top", "top --json -i 10ms -n 2", d.admin},
		{"top", "top --json -p -i 10ms -n 2", d.admin},
		{"version", "version --json", nil},
		{"why", "why --json", d.admin},
		{"why-qpn", "why --json " + qpn, d.admin},
	} {
		out := printedBy(t, with(c.args, c.flags)...)
		wantValid(t, c.name, c.args, out)
	}
}

// TestSchemaOfPerf: a report of bandwidth and one of latency are valid.
func TestSchemaOfPerf(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	for _, test := range []string{"write bw", "send lat"} {
		port := freePort(t)
		args := "perf " + test + " -n 100 -s 64 -p " + port
		server := start(t, with(args, d.client)...)
		waitListening(t, port)
		wantValid(t, "perf", args, success(t, with(args+" --out_json=- "+d.addr, d.client)...))
		if code := server.wait(t); code != 0 {
			t.Errorf("server of %s: exit code %d, want 0: %s", args, code, server.err.String())
		}
	}
}

// failure lets a connection of a daemon fail, and returns a capture of its packets and the number of a queue pair.
func failure(t *testing.T, d *served) (capture, qpn string) {
	t.Helper()
	port := freePort(t)
	const flags = "pingpong --retry 1 --ack-timeout 10 --timeout 2s -p "
	ends := start(t, with(flags+port, d.client)...)
	waitListening(t, port)
	success(t, with("fault add drop --opcode request --direction out --seed 1", d.admin)...)
	goroced(t, with(flags+port+" "+d.addr, d.client)...)
	ends.wait(t)
	success(t, with("fault clear", d.admin)...)
	var list []server.FailureInfo
	require.Until(t, "the failure is known", func() bool {
		return json.Unmarshal([]byte(success(t, with("why --json", d.admin)...)), &list) == nil && len(list) > 0
	})
	capture = filepath.Join(t.TempDir(), "story.pcapng")
	qpn = fmt.Sprintf("%#x", list[0].QPN)
	success(t, with("why --pcap "+capture+" "+qpn, d.admin)...)
	return capture, qpn
}

// printedBy returns what a command prints. One that watches is stopped after some lines.
func printedBy(t *testing.T, args ...string) string {
	t.Helper()
	if !slices.Contains(args, "--watch") {
		p, _ := goroced(t, args...) // a doctor that finds something wrong prints it, too
		return p.out.String()
	}
	p, line := startUntil(t, `(?m)^\{.*\n`, args...)
	_ = p.cmd.Process.Kill()
	return line[0]
}

// wantValid checks a command's output, one value or one on each line, against its schema and the strict form of it.
func wantValid(t *testing.T, name, args, out string) {
	t.Helper()
	i := slices.IndexFunc(printed, func(o output) bool { return o.name == name })
	var strict bytes.Buffer
	if err := writeSchema(&strict, schemaOf(t, newReflector(t, true), "", printed[i].values)); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"schema": success(t, "schema", name), "strict schema": strict.String()} {
		schema := compileSchema(t, text)
		n := 0
		for values := json.NewDecoder(strings.NewReader(out)); ; n++ {
			var v any
			if err := values.Decode(&v); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("goroced %s: %v", args, err)
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("goroced %s is not valid by its %s: %v\n%s", args, what, err, out)
				continue
			}
			if list, ok := v.([]any); ok && len(list) == 0 {
				t.Errorf("goroced %s has printed an empty list, which shows nothing", args)
			}
		}
		if n == 0 {
			t.Errorf("goroced %s has printed nothing", args)
		}
	}
}

// compileSchema returns the validator of a schema.
func compileSchema(t *testing.T, text string) *validator.Schema {
	t.Helper()
	doc, err := validator.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
