//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/tests/require"
)

// TestPage: docs/programs.md is what the table says, and README.md counts the same programs.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/programs.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := table()
	if diff := cmp.Diff(page(rows, versionsOf(string(text))), string(text)); diff != "" {
		t.Errorf("docs/programs.md is not what the table says; write it anew by `go run ./tests/programs -o "+
			"docs/programs.md` (-want +got):\n%s", diff)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	work, _ := counts(rows)
	want := fmt.Sprintf("[%d programs of %d families](docs/programs.md)", work, len(families(rows)))
	if !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not say %q", want)
	}
	if work < 60 || len(families(rows)) < 20 {
		t.Errorf("%d programs of %d families work, want 60 of 20", work, len(families(rows)))
	}
}

// TestTable: each row can be played, and has its reason if it fails.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range table() {
		if name := r.name() + r.only.String(); seen[name] {
			t.Errorf("twice: %s", name)
		} else {
			seen[name] = true
		}
		if _, err := regexp.Compile(r.says); err != nil {
			t.Error(err)
		}
		if (r.fails == "") != (r.whose == "") || r.fails != "" && r.says == "" {
			t.Errorf("%s: a row that fails has the reason, whose it is, and what the program says", r.name())
		}
	}
}

// TestPrograms plays the rows of .ci/run, which need no package beside what .ci/packages installs. An ordinary user
// plays those of one host, and root, without GOROCE_FULL=1, the others only.
func TestPrograms(t *testing.T) {
	require.Command(t, "cc")
	b, err := newBench(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(b.dir)
	t.Run("rows", func(t *testing.T) {
		require.Parallel(2)
		for _, r := range table() {
			if !r.ci {
				continue
			}
			for _, where := range r.places() {
				t.Run(where.String()+"/"+r.name(), func(t *testing.T) { b.test(t, r, where) })
			}
		}
	})
}

// test plays a row.
func (b *bench) test(t *testing.T, r row, where place) {
	switch {
	case where == twoHosts || r.network || r.root:
		require.Root(t)
	case os.Geteuid() == 0:
		require.FullRun(t, "an ordinary user plays it")
	}
	for _, name := range r.family.from {
		if out, _ := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Status}",
			name).Output(); string(out) != "installed" {
			require.Missing(t, "package %s is not installed", name)
		}
	}
	if os.Geteuid() == 0 { // rows have networks of their own
		t.Parallel()
	}
	if res := b.play(t.Context(), r, where); res.err != nil {
		t.Errorf("%v\n%s", res.err, res.output)
	}
}

// TestPackages: what the rows of .ci/run need is installed by .ci/packages.
func TestPackages(t *testing.T) {
	text, err := os.ReadFile("../../.ci/packages")
	if err != nil {
		t.Fatal(err)
	}
	installed := strings.Fields(string(text))
	for _, r := range table() {
		for _, name := range r.family.from {
			if r.ci && !slices.Contains(installed, name) {
				t.Errorf("%s needs package %s, which .ci/packages does not install", r.name(), name)
			}
		}
	}
}
