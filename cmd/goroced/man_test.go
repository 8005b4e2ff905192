package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// manPages writes the manual pages of a day and returns their directory.
func manPages(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "man1")
	t.Setenv("SOURCE_DATE_EPOCH", "1795537563")
	if out := success(t, "man", dir); out != "" {
		t.Errorf("it prints %s", out)
	}
	return dir
}

// TestManPages: there is a page for each command of --help, with the flags of the command's own help.
func TestManPages(t *testing.T) {
	dir := manPages(t)
	root := readPage(t, dir, "goroced")
	if want := `.TH GOROCED 1 "2026-11-24" "goroced `; !strings.HasPrefix(root, want) {
		t.Errorf("the page begins with %.60s..., want %s", root, want)
	}
	want := []string{"goroced.1"}
	_, commands, _ := strings.Cut(success(t, "--help"), "\nCommands:\n")
	commands, _, _ = strings.Cut(commands, "\n\n")
	for line := range strings.Lines(commands) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || strings.HasPrefix(line, "    ") || slices.Contains(want, "goroced-"+name+".1") {
			continue // the second line of its help, or another of its subcommands
		}
		want = append(want, "goroced-"+name+".1")
		if !strings.Contains(root, `\fBgoroced\-`+strings.ReplaceAll(name, "-", `\-`)+`\fR(1)`) {
			t.Errorf("goroced.1 does not refer to goroced-%s(1)", name)
		}
	}
	slices.Sort(want)
	var got []string
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got = append(got, f.Name())
		if text := readPage(t, dir, strings.TrimSuffix(f.Name(), ".1")); strings.Contains(text, "$$") {
			t.Errorf("%s shows a $$ that help escapes", f.Name())
		}
	}
	if !slices.Equal(got, want) || len(got) < 20 {
		t.Errorf("pages\n%v, want\n%v", got, want)
	}
	for line := range strings.Lines(success(t, "rping", "--help")) {
		_, flag, ok := strings.Cut(line, "--")
		flag = flag[:max(0, strings.IndexAny(flag+" ", "=, \n"))]
		if ok && flag != "" && strings.HasPrefix(line, "  ") &&
			!strings.Contains(readPage(t, dir, "goroced-rping"), `\fB\-\-`+strings.ReplaceAll(flag, "-", `\-`)+`\fR`) {
			t.Errorf("goroced-rping.1 lacks --%s", flag)
		}
	}
}

func readPage(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name+".1"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestManWarnings: neither mandoc nor groff, the two that show manual pages, has anything to complain of.
func TestManWarnings(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(manPages(t), "*.1"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v, %v", pages, err)
	}
	for _, tool := range [][]string{{"mandoc", "-T", "lint", "-W", "warning"},
		{"groff", "-man", "-T", "utf8", "-ww", "-z"}} { // as man --warnings calls it
		t.Run(tool[0], func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), require.Command(t, tool[0]), append(tool[1:], pages...)...)
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if tool[0] == "mandoc" {
				complaints.Write(out) // it complains there
			}
			if err != nil || complaints.Len() > 0 {
				t.Errorf("%s: %v\n%s", tool[0], err, complaints.String())
			}
		})
	}
}

// TestManRefuses: what cannot be written or read is said.
func TestManRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, code := goroced(t, "man", filepath.Join(file, "man1")); code != exitFailure ||
		!strings.Contains(p.err.String(), "not a directory") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if p, code := goroced(t, "man", t.TempDir()); code != exitFailure ||
		!strings.Contains(p.err.String(), "since 1970") {
		t.Errorf("exit code %d: %s", code, p.err.String())
	}
}
