// Package docs holds the documents to their word.
package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/conformance"
)

const root = "../.."

// specification lists the verbs of the IBTA specification, chapter 11, in the
// words that begin the rows of docs/verbs.md.
var specification = []string{
	"Open HCA", "Query HCA", "Modify HCA", "Close HCA",
	"Allocate PD", "Deallocate PD", "Allocate XRC domain", "Deallocate XRC domain",
	"Create AH", "Modify AH", "Query AH", "Destroy AH",
	"Create SRQ", "Modify SRQ", "Query SRQ", "Destroy SRQ",
	"Create QP", "Modify QP", "Query QP", "Destroy QP", "Get special QP",
	"Create CQ", "Query CQ", "Resize CQ", "Destroy CQ",
	"Allocate L_Key", "Register MR", "Register physical MR", "Query MR", "Deregister MR", "Re-register MR",
	"Re-register physical MR", "Register shared MR",
	"Allocate MW", "Query MW", "Bind MW", "Deallocate MW",
	"Attach QP to multicast group", "Detach QP from multicast group",
	"Post send", "Post receive", "Poll for completion", "Request completion notification",
	"Set completion event handler", "Set asynchronous event handler",
}

// row is a verb's row of the table.
type row struct{ verb, symbols, tests, difference string }

var code = regexp.MustCompile("`([^`]+)`")

// TestVerbs reads docs/verbs.md: every verb has a row, and every Go symbol and
// every test that a row names exists.
func TestVerbs(t *testing.T) {
	rows := readRows(t)
	exists := index(t)
	for _, verb := range specification {
		if _, ok := rows[verb]; !ok {
			t.Errorf("no row for %q", verb)
		}
	}
	for verb, r := range rows {
		for _, column := range []struct{ name, text string }{{"Go name", r.symbols}, {"test", r.tests}} {
			names := code.FindAllStringSubmatch(column.text, -1)
			if len(names) == 0 && r.difference == "" {
				t.Errorf("%s: no %s, and nothing that says why", verb, column.name)
			}
			for _, name := range names {
				if !exists(name[1]) {
					t.Errorf("%s: the %s %s does not exist", verb, column.name, name[1])
				}
			}
		}
	}
}

// readRows returns the rows of all tables by verb.
func readRows(t *testing.T) map[string]row {
	text, err := os.ReadFile(filepath.Join(root, "docs/verbs.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(cells[0], " ---") || strings.TrimSpace(cells[0]) == "Verb" {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[0]] = row{cells[0], cells[1], cells[2], cells[3]}
	}
	return rows
}

// index returns a function that knows the names of all declarations
// ("ib.QP.PostSend", "roce.TestBusy"), of the functions of all tests ("TestBusy"), and of
// all conformance cases; a case may end in "*", for all that begin so.
func index(t *testing.T) func(name string) bool {
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, ".go") {
			return declarations(file, names)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var cases bytes.Buffer
	if err := conformance.List(&cases); err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(cases.String())
	return func(name string) bool {
		if names[name] {
			return true
		}
		prefix, all := strings.CutSuffix(name, "*")
		for _, c := range list {
			if c == name || all && strings.HasPrefix(c, prefix) {
				return true
			}
		}
		return false
	}
}

// declarations adds what a file declares.
func declarations(file string, names map[string]bool) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	pkg := path.Base(filepath.ToSlash(filepath.Dir(file)))
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			names[pkg+"."+name] = true
			if d.Recv == nil && strings.HasSuffix(file, "_test.go") {
				names[name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				specNames(pkg, s, names)
			}
		}
	}
	return nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// specNames adds a type with its fields or methods, or constants and variables.
func specNames(pkg string, s ast.Spec, names map[string]bool) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[pkg+"."+n.Name] = true
		}
	case *ast.TypeSpec:
		names[pkg+"."+s.Name.Name] = true
		var fields *ast.FieldList
		switch typ := s.Type.(type) {
		case *ast.InterfaceType:
			fields = typ.Methods
		case *ast.StructType:
			fields = typ.Fields
		default:
			return
		}
		for _, f := range fields.List {
			for _, n := range f.Names {
				names[pkg+"."+s.Name.Name+"."+n.Name] = true
			}
		}
	}
}
