package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
)

// styles are how the terminal shows the status of a finding.
var styles = map[Status]term.Style{OK: term.Good, Warn: term.Warning, Fail: term.Problem}

// Write prints findings as a checklist with indented remedies, and a summary.
func Write(w io.Writer, t term.Terminal, findings []Finding) error {
	const indent = "                 "
	var b strings.Builder
	for _, f := range findings {
		status := fmt.Sprintf("%-4s", f.Status)
		line := t.Hang(fmt.Sprintf("%s  %-9s  ", status, f.Check), f.Text)
		fmt.Fprintln(&b, t.Paint(status, styles[f.Status])+strings.TrimPrefix(line, status))
		if f.Remedy != "" {
			fmt.Fprintln(&b, t.Hang(indent, f.Remedy))
		}
		if f.Command != "" {
			fmt.Fprintln(&b, t.Command(indent+"    ", f.Command))
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
