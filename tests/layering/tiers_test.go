package layering

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the top of the source.
const root = "../.."

// simulated has what is in tier T1 of tests/README.md: packages whose tests run in virtual time (roce/simtest), and
// single test files of other packages. live are the test files of such a package that use the machine's network and
// clock all the same.
var simulated = []struct {
	name string // a package, or a test file
	live []string
}{
	{"roce/remote", nil},
	{"roce/rdmacm", []string{
		"example_test.go", "example_write_test.go", // examples have no testing.T, so they are no simulations
		"live_test.go",
		"unreachable_test.go", // ICMP errors of the kernel
	}},
	{"roce/rsocket", []string{"example_test.go", "live_test.go", "bench_test.go" /* beside TCP */}},
	{"roce/simtest", nil},
	{"roce/simtest/daemontest", nil},
	{"roce/daemon/server/virtual_test.go", nil},
	{"examples/faults/ask", nil},
	{"examples/faults/quorum", nil},
	{"examples/faults/stopandwait", nil},
	{tool + "rping", nil},
	{tool + "rstream", []string{"live_test.go"}},
	{tool + "pingpong", []string{"live_test.go"}},
	{tool + "perf", []string{"live_test.go"}},
	{tool + "waiting", nil},
	{tool + "doctor/tells_test.go", nil},
	{"tests/conformance/sim_test.go", nil},
	{"tests/conformance/harness_test.go", nil},
}

// toTheMachine are packages by which a test reaches the machine's network and other processes.
var toTheMachine = []string{module + "roce/link/udp", module + "roce/link/rawsock", module + "roce/link/afxdp",
	module + "roce/host", "os/exec"}

// TestTiers: what is in tier T1 opens no sockets and starts no processes.
func TestTiers(t *testing.T) {
	for _, row := range simulated {
		pattern, unused := filepath.Join(root, row.name, "*_test.go"), slices.Clone(row.live)
		if strings.HasSuffix(row.name, ".go") {
			pattern = filepath.Join(root, row.name)
		}
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Errorf("%s is in tier T1, and there is no such test: %v", row.name, err)
		}
		for _, file := range files {
			reached := reaches(t, file)
			if i := slices.Index(unused, filepath.Base(file)); i >= 0 && reached != nil {
				unused = slices.Delete(unused, i, i+1)
			} else if reached != nil {
				t.Errorf("%s is in tier T1 and uses %v: use roce/simtest, or move the test to a file that is "+
					"listed as live", file, reached)
			}
		}
		for _, file := range unused {
			t.Errorf("%s of %s is listed as live and does not use the machine's network: remove it from the list", file,
				row.name)
		}
	}
}

// TestTiersComplete: whoever uses simulations is in the table.
func TestTiersComplete(t *testing.T) {
	for name, p := range list(t) {
		paths, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			file, parsed := name+"/"+filepath.Base(path), parse(t, path)
			simulates := slices.Contains(selected(parsed, "simtest"), "Run") ||
				slices.Contains(selected(parsed, "toolstest"), "Simulate")
			if simulates && !inSimulations(name) && !inSimulations(file) {
				t.Errorf("%s has simulations: list its package in simulated, or the file if the others have none", file)
			}
		}
	}
}

// inSimulations reports whether a package or a test file is in tier T1.
func inSimulations(name string) bool {
	for _, row := range simulated {
		if row.name == name {
			return true
		}
	}
	return false
}

// reaches returns by what a test file reaches the machine's network or other processes.
func reaches(t *testing.T, file string) (list []string) {
	t.Helper()
	parsed := parse(t, file)
	for _, imp := range parsed.Imports {
		if path, _ := strconv.Unquote(imp.Path.Value); slices.Contains(toTheMachine, path) {
			list = append(list, path)
		}
	}
	for _, name := range selected(parsed, "net") {
		for _, prefix := range []string{"Dial", "Listen", "Lookup", "Resolve", "Interface", "File"} {
			if strings.HasPrefix(name, prefix) && name != "Listener" {
				list = append(list, "net."+name)
			}
		}
	}
	for _, name := range selected(parsed, "toolstest") {
		if name == "Device" { // over UDP
			list = append(list, "toolstest."+name)
		}
	}
	return list
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// selected returns what a file uses of a package, once each.
func selected(file *ast.File, pkg string) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg && !slices.Contains(names, sel.Sel.Name) {
			names = append(names, sel.Sel.Name)
		}
		return true
	})
	return names
}
