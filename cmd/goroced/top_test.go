package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/top"
	"github.com/goroce/goroce/tests/require"
)

var updateTop = flag.Bool("top.update", false,
	"write docs/figures/top.svg, and the screen and the table of docs/operate.md, from a real run")

// The screen of docs, and the load that it shows.
const (
	topFigure = "../../docs/figures/top.svg"
	operate   = "../../docs/operate.md"

	topWidth, topHeight = 164, 18
	topQPs              = 200 // of two processes
	topRuns             = 5
	topIntervals        = 3 // of a second, in each run
)

// TestTopMany: of a daemon with 200 busy queue pairs `goroced top` lists each, five times, and takes little of a
// processor for that.
func TestTopMany(t *testing.T) {
	if !*updateTop {
		require.FullRun(t, "it takes seconds")
	}
	d := newServed(t)
	port := freePort(t)
	load := func(args ...string) {
		line := fmt.Sprintf("perf write bw -q %d -s 4096 -t 16 -D 600 -p %s", topQPs/2, port)
		p := start(t, append(with(line, d.client), args...)...)
		t.Cleanup(func() { _ = p.cmd.Process.Kill(); p.wait(t) })
	}
	load()
	waitListening(t, port)
	load(d.addr)
	client := admin.NewClient(d.admin[1])
	require.Until(t, "all queue pairs are busy", func() bool {
		list, err := client.QPs(t.Context())
		busy := 0
		for i := range list {
			if list[i].Traffic != nil && list[i].Traffic.SentBytes > 0 {
				busy++
			}
		}
		return err == nil && busy == topQPs
	})
	table := "| Run | Queue pairs listed | Processor time of top for an interval | Of one processor |\n" +
		"| --- | --- | --- | --- |\n"
	for run := range topRuns {
		begun := time.Now()
		p, code := goroced(t, with(fmt.Sprintf("top --json -i 1s -n %d", topIntervals), d.admin)...)
		took := time.Since(begun)
		lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
		if code != 0 || len(lines) != topIntervals {
			t.Fatalf("top: exit code %d, %d intervals, want 0 and %d: %s", code, len(lines), topIntervals,
				p.err.String())
		}
		least := topQPs
		for _, line := range lines {
			var rows []top.Row
			if err := json.Unmarshal([]byte(line), &rows); err != nil {
				t.Fatal(err)
			}
			shown := map[uint32]bool{}
			for _, r := range rows {
				shown[r.QPN] = true
			}
			least = min(least, len(shown))
		}
		used := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		share := used.Seconds() / took.Seconds()
		if least != topQPs || share > 0.2 {
			t.Errorf("run %d: got %d queue pairs, want %d, and %.1f %% of a processor, want at most 20", run+1, least,
				topQPs, share*100)
		}
		table += fmt.Sprintf("| %d | %d of %d | %.1f ms | %.1f %% |\n", run+1, least, topQPs,
			used.Seconds()*1e3/topIntervals, share*100)
	}
	screen := topScreen(t, client)
	t.Logf("%s\n%s", screen.text(), table)
	if *updateTop {
		writeTop(t, screen, table)
	}
}

// TestTopFigure: the picture and docs/operate.md show the same screen of 200 queue pairs, and a table of five runs.
func TestTopFigure(t *testing.T) {
	svg, err := os.ReadFile(topFigure)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(operate)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := topParts(t, string(page))
	block, table, _ := strings.Cut(text, "\n\n|")
	lines := strings.Split(strings.Trim(block, "\n"), "\n")
	first := fmt.Sprintf("    %d queue pairs of 2 processes", topQPs)
	if len(lines) != topHeight || !strings.HasPrefix(lines[0], first) {
		t.Errorf("%s has %d lines of a screen, want %d that begin with %q:\n%s", operate, len(lines), topHeight, first,
			block)
	}
	for _, line := range lines {
		if want := html.EscapeString(strings.TrimPrefix(line, "    ")); !strings.Contains(string(svg), ">"+want+"<") {
			t.Errorf("%s lacks the line %q", topFigure, want)
		}
	}
	if n := strings.Count(table, fmt.Sprintf("| %d of %d |", topQPs, topQPs)); n != topRuns {
		t.Errorf("the table has %d runs that list all, want %d:\n%s", n, topRuns, table)
	}
}

// Marks in docs/operate.md around what is written there.
const topBegin, topEnd = "<!-- top: go test ./cmd/goroced -run TestTopMany -top.update -->\n", "<!-- end of top -->\n"

// topParts returns what is before the screen and the table, these, and the rest.
func topParts(t *testing.T, page string) (before, parts, rest string) {
	t.Helper()
	before, parts, ok := strings.Cut(page, topBegin)
	parts, rest, also := strings.Cut(parts, topEnd)
	if !ok || !also {
		t.Fatalf("%s lacks the marks of the screen of top", operate)
	}
	return before, parts, rest
}

// writeTop writes the picture, and the screen and the table into docs/operate.md.
func writeTop(t *testing.T, s *shot, table string) {
	t.Helper()
	page, err := os.ReadFile(operate)
	if err != nil {
		t.Fatal(err)
	}
	before, _, rest := topParts(t, string(page))
	block := ""
	for line := range strings.Lines(s.text()) {
		block += strings.TrimRight("    "+line, " \n") + "\n"
	}
	for file, text := range map[string]string{topFigure: s.svg("goroced top"),
		operate: before + topBegin + "\n" + block + "\n" + table + "\n" + topEnd + rest} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shot is what a screen shows.
type shot struct {
	cells         []tcell.SimCell
	width, height int
}

// topScreen shows `goroced top` on a screen until it has two intervals, and returns what is there.
func topScreen(t *testing.T, client *admin.Client) *shot {
	t.Helper()
	screen := &sized{tcell.NewSimulationScreen("UTF-8")}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- top.Show(ctx, screen, client.QPs, top.View{}, time.Second) }()
	var s shot
	require.Until(t, "the screen shows all queue pairs", func() bool {
		s.cells, s.width, s.height = screen.GetContents()
		return s.width == topWidth && strings.HasPrefix(s.text(), fmt.Sprintf("%d queue pairs", topQPs))
	})
	s.cells = append([]tcell.SimCell(nil), s.cells...)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return &s
}

// sized is a screen that has the size of the picture from the start.
type sized struct{ tcell.SimulationScreen }

func (s *sized) Init() error {
	err := s.SimulationScreen.Init()
	s.SetSize(topWidth, topHeight)
	return err
}

// line returns a line of the screen, without spaces at its end.
func (s *shot) line(y int) string {
	var b strings.Builder
	for _, c := range s.cells[y*s.width : (y+1)*s.width] {
		b.WriteString(cmp.Or(string(c.Runes), " "))
	}
	return strings.TrimRight(b.String(), " ")
}

func (s *shot) text() string {
	var b strings.Builder
	for y := range s.height {
		b.WriteString(s.line(y) + "\n")
	}
	return b.String()
}

// Cells of the picture, in its units.
const cellWidth, cellHeight = 7.3, 16.0

// svg draws the screen. Each line is one text, in the style of its first cell; that is all that top has but for the
// title of the column to sort by.
func (s *shot) svg(title string) string {
	var b strings.Builder
	width, height := float64(s.width)*cellWidth+20, float64(s.height)*cellHeight+20
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n", width,
		height)
	fmt.Fprintf(&b, "<title>%s</title>\n%s", title, topStyle)
	fmt.Fprintf(&b, "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n", width, height)
	for y := range s.height {
		text := s.line(y)
		if text == "" {
			continue
		}
		foreground, _, attrs := s.cells[y*s.width].Style.Decompose()
		class := "row"
		switch {
		case attrs&tcell.AttrReverse != 0:
			class = "head"
			fmt.Fprintf(&b, "<rect class=\"bar\" x=\"10\" y=\"%.0f\" width=\"%.1f\" height=\"%.0f\"/>\n",
				10+float64(y)*cellHeight, float64(len(text))*cellWidth, cellHeight)
		case attrs&tcell.AttrBold != 0:
			class = "bold"
		case attrs&tcell.AttrDim != 0:
			class = "dim"
		case foreground == tcell.ColorRed:
			class = "red"
		}
		fmt.Fprintf(&b, "<text class=\"%s\" x=\"10\" y=\"%.0f\" textLength=\"%.1f\" xml:space=\"preserve\">%s</text>\n",
			class, 10+float64(y+1)*cellHeight-4, float64(len(text))*cellWidth, html.EscapeString(text))
	}
	return b.String() + "</svg>\n"
}

const topStyle = `<style>
.page { fill: #10151c } .bar { fill: #d6dde6 }
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #d6dde6; white-space: pre }
.bold { font-weight: bold } .head { fill: #10151c } .dim { fill: #8a949f } .red { fill: #ff6b5e }
</style>
`
