package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Write prints findings as a checklist with indented remedies, and a summary.
func Write(w io.Writer, findings []Finding) error {
	const indent = "                 "
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-4s  %-9s  %s\n", f.Status, f.Check, f.Text)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%s%s\n", indent, f.Remedy)
		}
		if f.Command != "" {
			fmt.Fprintf(&b, "%s    %s\n", indent, f.Command)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warn, %d fail\n", Count(findings, OK), Count(findings, Warn), Count(findings, Fail))
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON prints findings as one JSON object: {"ok": bool, "findings": [...]}. ok is true if no finding has the
// status Fail.
func WriteJSON(w io.Writer, findings []Finding) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		OK       bool      `json:"ok"`
		Findings []Finding `json:"findings"`
	}{Count(findings, Fail) == 0, findings})
}
