package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
)

// TestFailures: docs/failures.md lists each reason with its code and the advice that goroced gives.
func TestFailures(t *testing.T) {
	page, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for r := ib.ReasonNone + 1; r < 255; r++ {
		if text := r.String(); !strings.HasPrefix(text, "Reason(") {
			advice := strings.ReplaceAll(r.Advice(), "docs/verbs.md", "[verbs.md](verbs.md)")
			row := fmt.Sprintf("\n| %#x | %s | %s |\n", r.VendorErr(), text, advice)
			if !strings.Contains(string(page), row) {
				t.Errorf("docs/failures.md lacks the row %q", row)
			}
			listed++
		}
	}
	if rows := strings.Count(string(page), "\n| 0x67"); rows != listed {
		t.Errorf("got %d rows, want %d, one for each reason", rows, listed)
	}
}
