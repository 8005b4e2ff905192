package main

import (
	"strings"
	"testing"
)

// TestExamples: each command has examples in its help, and they are valid command lines.
func TestExamples(t *testing.T) {
	parser := newParser(new(commandLine))
	known := map[string]bool{}
	for _, node := range parser.Model.Leaves(true) {
		name := strings.TrimPrefix(node.FullPath(), "goroced ")
		known[name] = true
		if len(examples[name]) == 0 {
			t.Errorf("goroced %s has no example", name)
		}
		for _, e := range examples[name] {
			if !strings.Contains(node.Detail, "  "+e.line+"\n") {
				t.Errorf("the help of goroced %s lacks %q:\n%s", name, e.line, node.Detail)
			}
			args := strings.Fields(e.line)
			parsed, err := newParser(new(commandLine)).Parse(args[1:])
			if err != nil {
				t.Errorf("%s: %v", e.line, err)
			} else if got := parsed.Selected().FullPath(); args[0] != "goroced" || got != "goroced "+name {
				t.Errorf("%s is an example of %s, want %s", e.line, got, name)
			}
		}
	}
	for name := range examples {
		if !known[name] {
			t.Errorf("there are examples of %s, which is no command", name)
		}
	}
	if out := success(t, "fault", "add", "--help"); !strings.Contains(out, "\nExamples:\n\n    # lose one packet in") {
		t.Errorf("the help of fault add, want %q:\n%s", "\nExamples:\n\n    # lose one packet in", out)
	}
}
