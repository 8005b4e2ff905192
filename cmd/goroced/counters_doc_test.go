package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce"
)

// TestCountersDoc: docs/counters.md has a row for each counter of a device, in the order of `goroced stat`.
func TestCountersDoc(t *testing.T) {
	page, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, c := range new(roce.Stats).Counters() {
		fmt.Fprintf(&want, "| `%s` | %s |\n", c.Name, counterHelp[c.Name])
	}
	_, got, _ := strings.Cut(string(page), "| --- | --- |\n")
	if got != want.String() {
		t.Errorf("docs/counters.md has the table\n%s\nwant\n%s", got, &want)
	}
}
