// Package layering tests the shape of the source: which package may import which,
// and how long files and functions get.
package layering

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/goroce/goroce/"

// pure packages reach neither the operating system's network nor packet
// libraries, not even through others.
var pure = []string{"ib", "ib/driver", "wire", "mr", "qp", "qp/ring", "qp/script", "roce", "roce/cm",
	"roce/internal/cma", "roce/internal/device", "roce/internal/engine", "roce/internal/ipid", "roce/internal/offload",
	"roce/internal/slowmem", "roce/link", "roce/trace", "roce/trace/track", "roce/trace/capfile"}

var impure = []string{"net", "golang.org/x/sys", "github.com/vishvananda", "github.com/google/gopacket",
	"github.com/cilium"}

// cpu reads the processor's features, and nothing else, so that pure packages may import it.
const cpu = "golang.org/x/sys/cpu"

// clockless packages are handed the time.
var clockless = []string{"ib", "wire", "mr", "qp", "qp/ring", "qp/script", "roce/cm", "roce/internal/ipid",
	"roce/internal/offload", "roce/trace", "roce/trace/track",
	"roce/trace/capfile"}

type goPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports, Deps   []string
}

func list(t *testing.T) map[string]goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	pkgs := map[string]goPackage{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

func TestImports(t *testing.T) {
	pkgs := list(t)
	below := map[string]bool{} // the rows so far
	for _, layer := range layers {
		for _, r := range layer.rows {
			p, ok := pkgs[r.name]
			switch {
			case !ok:
				t.Errorf("%s: package %s has a row and does not exist", layer.name, r.name)
			case below[r.name]:
				t.Errorf("%s: package %s has two rows", layer.name, r.name)
			}
			checkRow(t, r, p, below)
			below[r.name] = true
		}
	}
	for name := range pkgs {
		if !below[name] {
			t.Errorf("package %s has no row: say in layers what it may import", name)
		}
	}
}

// checkRow holds what a package imports against its row, and the row against the rows below.
func checkRow(t *testing.T, r row, p goPackage, below map[string]bool) {
	for _, imp := range p.Imports {
		if rel, ours := strings.CutPrefix(imp, module); ours && !slices.Contains(r.imports, rel) {
			t.Errorf("package %s imports %s, want only %v", r.name, rel, r.imports)
		}
	}
	for _, imp := range r.imports {
		if !below[imp] {
			t.Errorf("the row of package %s has %s, which has no row before it", r.name, imp)
		}
		if !slices.Contains(p.Imports, module+imp) {
			t.Errorf("the row of package %s has %s, which it does not import", r.name, imp)
		}
	}
}

// TestPure looks for what the packages of the core must not reach.
func TestPure(t *testing.T) {
	pkgs := list(t)
	for _, name := range pure {
		for _, dep := range pkgs[name].Deps {
			for _, bad := range impure {
				if dep == bad || bad != "net" && dep != cpu && strings.HasPrefix(dep, bad+"/") {
					t.Errorf("package %s reaches %s, want it not to", name, dep)
				}
			}
		}
	}
}

// TestNoClock looks for calls that read a clock or wait for one; durations are
// only numbers.
func TestNoClock(t *testing.T) {
	pkgs := list(t)
	for _, name := range clockless {
		for _, file := range pkgs[name].GoFiles {
			path := filepath.Join(pkgs[name].Dir, file)
			for _, name := range clockReads(t, path) {
				t.Errorf("%s calls time.%s; the package is handed ib.Instants", path, name)
			}
		}
	}
}

// Limits that keep a file one concept and a function readable.
const (
	maxFileLines = 600
	maxFuncLines = 70
)

func TestSizes(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if n := set.File(file.Pos()).LineCount(); n > maxFileLines {
			t.Errorf("%s has %d lines, want at most %d: split it by concept", path, n, maxFileLines)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, want at most %d", path, f.Name.Name, n, maxFuncLines)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
