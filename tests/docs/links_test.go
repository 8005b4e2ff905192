package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linked  = regexp.MustCompile(`\]\(([^)\s]+)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`)
)

// TestLinks follows the links of the documents: files are there, and anchors are those of headings.
func TestLinks(t *testing.T) {
	texts := documents(t)
	for doc, text := range texts {
		for _, m := range linked.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			name, anchor, _ := strings.Cut(m[1], "#")
			to := doc
			if name != "" {
				to = path.Join(path.Dir(doc), name)
			}
			if !there(to) {
				t.Errorf("%s links to %s, which is not there", doc, to)
			} else if anchor != "" && !anchors(texts[to])[anchor] {
				t.Errorf("%s links to %s, which has no heading for #%s", doc, to, anchor)
			}
		}
	}
}

// anchors returns what GitHub names the headings of a document.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		names[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return names
}

// TestAnchors: headings of all kinds have the anchors that GitHub gives them.
func TestAnchors(t *testing.T) {
	got := anchors("# Fedora, RHEL, SUSE\n\n```\n# not a heading\n```\n\n## `goroced run`: C_1\n")
	if len(got) != 2 || !got["fedora-rhel-suse"] || !got["goroced-run-c_1"] {
		t.Error(got)
	}
}

// TestExamplesLinked: README.md and examples/README.md link to something in each folder of examples.
func TestExamplesLinked(t *testing.T) {
	folders, err := os.ReadDir(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	texts := documents(t)
	for doc, prefix := range map[string]string{"README.md": "examples/", "examples/README.md": ""} {
		for _, f := range folders {
			if f.IsDir() && !strings.Contains(texts[doc], "]("+prefix+f.Name()+"/") {
				t.Errorf("%s links to nothing in examples/%s", doc, f.Name())
			}
		}
	}
}
