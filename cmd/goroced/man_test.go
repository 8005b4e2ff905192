package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// manPages writes the manual pages of a day and returns their directory.
func manPages(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "man")
	t.Setenv("SOURCE_DATE_EPOCH", "1795537563")
	if out := success(t, "man", dir); out != "" {
		t.Errorf("it prints %s, want nothing", out)
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
	files, err := os.ReadDir(filepath.Join(dir, "man1"))
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

// TestManParts: pages have examples, files and variables where their command has them.
func TestManParts(t *testing.T) {
	dir := manPages(t)
	for _, c := range []struct {
		page        string
		parts, lack []string
	}{
		{"goroced", []string{".SH ENVIRONMENT", ".SH FILES", "GOROCED_SOCKET", "goroced.toml"}, nil},
		{"goroced-top", []string{".SH EXAMPLES\n.EX\n", "goroced top \\-p", ".SH FILES", "goroced\\-admin.sock",
			"GOROCED_ADMIN"}, []string{"Examples:", "GOROCE_LIB"}},
		{"goroced-fault", []string{"goroced fault add drop", "goroced fault clear"}, []string{"Examples:"}},
		{"goroced-config", []string{"/etc/goroce/goroced.toml", "GOROCED_CONFIG", "goroced config init"}, nil},
		{"goroced-run", []string{"GOROCE_DEBUG", "GOROCE_MR", ".cache/goroce", "goroced run \\-\\- ibv_devices"}, nil},
		{"goroced-man", []string{"SOURCE_DATE_EPOCH", ".SH EXAMPLES"}, []string{".SH FILES", "GOROCED_"}},
		{"goroced-verbs", []string{".TH GOROCED\\-VERBS 7 ", "run over the daemon as they are", ".EX\n    goroced run",
			".IP \\(bu 2\nsetuid programs", ".SH WHAT IS NOT OFFERED\n", "GOROCE_MR"}, []string{"](", "\n|", "`"}},
		{"goroced.toml", []string{".TH GOROCED.TOML 5 ", ".SH [limits.user]", "half of the memory", "qps"}, nil},
	} {
		text := readPage(t, dir, c.page)
		for _, want := range c.parts {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", c.page, want, text)
			}
		}
		for _, other := range c.lack {
			if strings.Contains(text, other) {
				t.Errorf("%s has %q, want it not to:\n%s", c.page, other, text)
			}
		}
	}
	_, example, _ := strings.Cut(configExample, "\n\n")
	config := regexp.MustCompile(`(?m)^  `).ReplaceAllString(example, "")
	if out := success(t, "config", "show", "--config", configFile(t, config)); !strings.Contains(out, `pinned = "16GiB"`) {
		t.Errorf("the example of goroced.toml(5), want %q, is taken as\n%s", `pinned = "16GiB"`, out)
	}
}

func readPage(t *testing.T, dir, name string) string {
	t.Helper()
	section, other := map[string]string{"goroced.toml": "5", "goroced-verbs": "7"}[name]
	if !other {
		section = "1"
	}
	text, err := os.ReadFile(filepath.Join(dir, "man"+section, name+"."+section))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestManWarnings: neither mandoc nor groff, the two that show manual pages, has anything to complain of.
func TestManWarnings(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(manPages(t), "man*", "*"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v, %v; want some", pages, err)
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
				t.Errorf("%s: %v, want no complaints\n%s", tool[0], err, complaints.String())
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
		t.Errorf("exit code %d, want %d and %q: %s", code, exitFailure, "not a directory", p.err.String())
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if p, code := goroced(t, "man", t.TempDir()); code != exitFailure ||
		!strings.Contains(p.err.String(), "since 1970") {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitFailure, "since 1970", p.err.String())
	}
}
