package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/internal/cells"
)

// styles are how the terminal shows the status of a finding.
var styles = map[Status]term.Style{OK: term.Good, Warn: term.Warning, Fail: term.Problem}

// Write prints findings as a checklist with indented remedies, a summary, and what to do next.
func (r *Report) Write(w io.Writer, t term.Terminal) error {
	const indent = "                 "
	var b strings.Builder
	for _, f := range r.Findings {
		status := fmt.Sprintf("%-4s", f.Status)
		line := t.Hang(fmt.Sprintf("%s  %-9s  ", status, f.Check), f.Text)
		fmt.Fprintln(&b, t.Paint(status, styles[f.Status])+strings.TrimPrefix(line, status))
		if f.Remedy != "" {
			fmt.Fprintln(&b, t.Hang(indent, f.Remedy))
		}
		for command := range strings.Lines(f.Command) {
			fmt.Fprintln(&b, t.Command(indent+"    ", strings.TrimSuffix(command, "\n")))
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warn, %d fail\n", r.Count(OK), r.Count(Warn), r.Count(Fail))
	if r.OK() {
		fmt.Fprintf(&b, "\nRDMA works on this machine. Next:\n")
	}
	for _, s := range r.Next {
		line := fmt.Sprintf("    %-34s # %s", s.Command, s.Does)
		if cells.Count(line) > t.Columns() {
			line = fmt.Sprintf("    %s\n    %-34s # %s", s.Command, "", s.Does)
		}
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON prints the report as one JSON object: {"ok": bool, "findings": [...], "next": [...]}.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		OK bool `json:"ok"`
		*Report
	}{r.OK(), r})
}
