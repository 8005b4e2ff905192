package install

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// document returns the blocks of commands of docs/install.md, as a reader copies them, with a user and an address in
// place of the words that stand for them. A block's name is that of its heading with a number: "debian-and-ubuntu-2".
func document() (map[string]string, error) {
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		return nil, err
	}
	blocks := map[string]string{}
	words := strings.NewReplacer("USER", "member", "ADDRESS", "192.0.2.1")
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		name := strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(heading, ",", "")), " ", "-")
		for i, block := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(rest, -1) {
			blocks[fmt.Sprintf("%s-%d", name, i+1)] = words.Replace(block)
		}
	}
	return blocks, nil
}

// writeBlocks writes the blocks into files of their names.
func writeBlocks(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, block := range blocks {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDocument: each block of the document is run by a script or a test, which names it.
func TestDocument(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.sh")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range append(scripts, "main_test.go", "release_test.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for name := range blocks {
		if !regexp.MustCompile(regexp.QuoteMeta(name) + `\b`).MatchString(all.String()) {
			t.Errorf("nothing runs block %s:\n%s", name, blocks[name])
		}
	}
	if len(blocks) == 0 {
		t.Error("there is no block")
	}
}
