package trace

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// lossySend is a SEND of three packets that loses one and goes back.
func lossySend(l *Ladder) {
	us := func(n float64) ib.Instant { return ib.Instant(5e9 + n*1e3) }
	l.Local(us(0), true, "post SEND 2500 B, wr_id 7")
	l.Local(us(0), false, "post RECV 4096 B")
	l.Packet(us(0), true, "SEND First psn=100 (1024 B)")
	e := l.Packet(us(1.2), true, "SEND Middle psn=101 (1024 B)")
	e.Lost, e.Note = true, "dropped by the fault injector: every 2nd packet"
	l.Packet(us(2.4), true, "SEND Last psn=102 AckReq (452 B)").Note = "gap: 101 is missing"
	l.Packet(us(9.6), false, "NAK PSN sequence error psn=101 msn=0")
	l.Note("go back to psn 101")
	l.Packet(us(11), true, "SEND Middle psn=101 (1024 B)").Note = "again"
	l.Packet(us(12.2), true, "SEND Last psn=102 AckReq (452 B)").Note = "again"
	l.Packet(us(20), false, "ACK psn=102 msn=1").Lost = true
	l.Local(us(20.1), false, "completion: RECV success, 2500 B")
	l.Note("the ACK is lost: nothing but the local ACK timeout of 67.1 ms tells the requester, which then sends " +
		"everything again from the first packet without an acknowledgement")
	l.Packet(us(67112), true, "SEND First psn=100 (1024 B)")
	l.Packet(us(67120), false, "ACK psn=102 msn=1").Note = "duplicate"
	l.Local(us(67121), true, "completion: SEND success")
}

// longLabels is a READ, whose request says much.
func longLabels(l *Ladder) {
	l.Packet(0, true, "READ Request psn=16777215 AckReq va=0x7f1234567000 len=2147483648 rkey=0x12345678")
	l.Packet(1500, false, "READ Response First psn=16777215 msn=1 (4096 B)").Note = "for request #1"
	for i := range 61 {
		l.Packet(ib.Instant(2000+500*i), false, "READ Response Middle psn="+strconv.Itoa(i)+" (4096 B)")
	}
	l.Packet(44e6, false, "READ Response Last psn=61 msn=1 (4096 B)")
}

// TestLadder draws the same stories on terminals of several widths.
func TestLadder(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(*Ladder)
		opts  TextOptions
		limit int // columns
	}{
		{"lossy-80.txt", lossySend, TextOptions{}, 80},
		{"lossy-100.txt", lossySend, TextOptions{Width: 100}, 100},
		{"lossy-ascii-120.txt", lossySend, TextOptions{Width: 120, ASCII: true}, 120},
		{"lossy-narrow.txt", lossySend, TextOptions{Width: 1}, 60},
		{"read-80.txt", longLabels, TextOptions{Width: 80, Fold: 4}, 80},
		{"read-100.txt", longLabels, TextOptions{Width: 100, Fold: 4}, 100},
		{"read-130.txt", longLabels, TextOptions{Width: 130, Fold: 4}, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := Ladder{Left: "client", Right: "server"}
			c.story(&l)
			text := l.Text(c.opts)
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > c.limit {
					t.Errorf("row of %d cells, want at most %d: %s", n, c.limit, line)
				}
			}
			golden(t, c.name, text)
		})
	}
}

// TestFold: runs are shortened, and what is not similar is drawn.
func TestFold(t *testing.T) {
	packet := func(label string) Event { return Event{Left: true, Text: label} }
	middle := func(psn string) Event { return packet("SEND Middle psn=" + psn + " (1024 B)") }
	lost := middle("3")
	lost.Lost = true
	back := middle("3")
	back.Left = false
	wrong := middle("3")
	wrong.Problem = true
	for _, c := range []struct {
		name   string
		events []Event
		limit  int
		want   []string
	}{
		{"run", []Event{middle("1"), middle("2"), middle("3"), middle("4")}, 3,
			[]string{"SEND Middle psn=1 (1024 B)", "... 3 more SEND Middle psn=2..4"}},
		{"at the limit", []Event{middle("1"), middle("2"), middle("3")}, 3,
			[]string{middle("1").Text, middle("2").Text, middle("3").Text}},
		{"off", []Event{middle("1"), middle("2"), middle("3")}, 0,
			[]string{middle("1").Text, middle("2").Text, middle("3").Text}},
		{"two are never folded", []Event{middle("1"), middle("2")}, 1, []string{middle("1").Text, middle("2").Text}},
		{"wraps around", []Event{middle("16777214"), middle("16777215"), middle("0")}, 1,
			[]string{middle("16777214").Text, "... 2 more SEND Middle psn=16777215..0"}},
		{"PSN goes back", []Event{middle("2"), middle("3"), middle("1"), middle("2")}, 1,
			[]string{middle("2").Text, middle("3").Text, middle("1").Text, middle("2").Text}},
		{"lost", []Event{middle("1"), middle("2"), lost, middle("4")}, 1,
			[]string{middle("1").Text, middle("2").Text, lost.Text, middle("4").Text}},
		{"direction", []Event{middle("1"), middle("2"), back}, 1,
			[]string{middle("1").Text, middle("2").Text, back.Text}},
		{"problem", []Event{middle("1"), middle("2"), wrong, middle("4")}, 1,
			[]string{middle("1").Text, middle("2").Text, wrong.Text, middle("4").Text}},
		{"no PSN", []Event{packet("CNP"), packet("CNP"), packet("CNP")}, 1, []string{"CNP", "... 2 more CNP"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range fold(c.events, c.limit) {
				got = append(got, e.Text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestProblem: an event that goes wrong has a mark, and where colours are allowed, a colour; nothing else changes.
func TestProblem(t *testing.T) {
	const red, plain = "\x1b[1;31m", "\x1b[0m"
	l := Ladder{Left: "client", Right: "server"}
	lossySend(&l)
	calm := strings.Split(l.Text(TextOptions{}), "\n")
	wrong := &l.Events[3]
	wrong.Problem = true
	marked := strings.Split(l.Text(TextOptions{}), "\n")
	painted := strings.Split(l.Text(TextOptions{Color: true}), "\n")
	if len(marked) != len(calm) || len(painted) != len(calm) {
		t.Fatalf("%d rows with a mark, %d with a colour, want %d", len(marked), len(painted), len(calm))
	}
	for i := range calm {
		want := calm[i]
		first, after := strings.Contains(want, "psn=101 (1024 B) ─────X"), strings.Contains(want, wrong.Note)
		if first {
			want = "!" + strings.TrimPrefix(want, " ")
		}
		if marked[i] != want {
			t.Errorf("row %d is\n%s, want\n%s", i, marked[i], want)
		}
		if first || after {
			want = red + want + plain
		}
		if painted[i] != want {
			t.Errorf("row %d is %q, want %q", i, painted[i], want)
		}
	}
}

// TestHostileText: text from a capture cannot steer the terminal, and no length
// of it breaks the columns.
func TestHostileText(t *testing.T) {
	l := Ladder{Left: strings.Repeat("left", 50), Right: "\x1b[2Jright\n"}
	e := l.Packet(0, true, "\x1b[31mSEND\r\n"+strings.Repeat("x", 500))
	e.Lost, e.Note, e.Problem = true, "\a"+strings.Repeat("é", 300), true
	l.Packet(-1<<63, false, "").Lost = true
	l.Packet(1<<63-1, false, "ACK psn=99999999999999999999 psn=")
	l.Local(0, false, "").Problem = true
	l.Note("").Problem = true
	for line := range strings.Lines(l.Text(TextOptions{Width: 80})) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
			t.Errorf("control character in %q", line)
		}
		if n := utf8.RuneCountInString(line); n > 80+16 { // spans of centuries are wider than their column
			t.Errorf("row of %d cells, want at most %d: %s", n, 80+16, line)
		}
	}
}
