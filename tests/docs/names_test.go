package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// symbols lists the documents in which a name in code type that begins with a package of
// this module is one of its declarations. In the others it may be a variable of an example.
var symbols = []string{"docs/architecture.md", "docs/glossary.md"}

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inside   = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+$`)
	dotted   = regexp.MustCompile(`^([a-z]\w*)(\.\w+)+$`)
	bareTest = regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w*(/\S*)?$`)
	indents  = regexp.MustCompile(`(?m)^    .*$`)
)

// documents returns the text of all documents by their path in the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	var files []string
	for _, folder := range []string{".", "docs", "examples"} {
		list, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.ToSlash(rel)] = string(text)
	}
	return texts
}

// TestNames reads the documents: the files and folders that they name in code type are there,
// the tests exist, and so do the declarations that those of symbols name.
func TestNames(t *testing.T) {
	folders := topFolders(t)
	exists := index(t)
	packages := packageNames(t)
	for doc, text := range documents(t) {
		prose := indents.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
		for _, m := range code.FindAllStringSubmatch(prose, -1) {
			name := strings.TrimSuffix(m[1], "/")
			first, _, _ := strings.Cut(name, "/")
			switch dot := dotted.FindStringSubmatch(name); {
			case inside.MatchString(name) && folders[first]:
				if !there(name) && !exists(name) { // or it is a conformance case
					t.Errorf("%s names %s, which is not there", doc, name)
				}
			case bareTest.MatchString(name):
				if test, _, _ := strings.Cut(name, "/"); !exists(test) {
					t.Errorf("%s names %s, which is no test", doc, name)
				}
			case dot != nil && packages[dot[1]] && slices.Contains(symbols, doc):
				if !exists(name) {
					t.Errorf("%s names %s, which is not declared", doc, name)
				}
			}
		}
	}
}

// there reports whether the repository has a file or folder.
func there(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return !errors.Is(err, fs.ErrNotExist)
}

// topFolders returns the folders of the repository: a name that begins with one is a path.
func topFolders(t *testing.T) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for _, e := range entries {
		folders[e.Name()] = e.IsDir()
	}
	return folders
}

// packageNames returns the last elements of the packages' paths.
func packageNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, ".go") {
			names[filepath.Base(filepath.Dir(file))] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
