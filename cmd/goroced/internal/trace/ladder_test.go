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

	"github.com/goroce/goroce/cmd/goroced/internal/term"
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
	l.Packet(us(0), true, "SEND First psn=100 (1024 B)", false, "")
	l.Packet(us(1.2), true, "SEND Middle psn=101 (1024 B)", true, "dropped by the fault injector: every 2nd packet")
	l.Packet(us(2.4), true, "SEND Last psn=102 AckReq (452 B)", false, "gap: 101 is missing")
	l.Packet(us(9.6), false, "NAK PSN sequence error psn=101 msn=0", false, "")
	l.Note("go back to psn 101")
	l.Packet(us(11), true, "SEND Middle psn=101 (1024 B)", false, "again")
	l.Packet(us(12.2), true, "SEND Last psn=102 AckReq (452 B)", false, "again")
	l.Packet(us(20), false, "ACK psn=102 msn=1", true, "")
	l.Local(us(20.1), false, "completion: RECV success, 2500 B")
	l.Note("the ACK is lost: nothing but the local ACK timeout of 67.1 ms tells the requester, which then sends " +
		"everything again from the first packet without an acknowledgement")
	l.Packet(us(67112), true, "SEND First psn=100 (1024 B)", false, "")
	l.Packet(us(67120), false, "ACK psn=102 msn=1", false, "duplicate")
	l.Local(us(67121), true, "completion: SEND success")
}

// longLabels is a READ, whose request says much.
func longLabels(l *Ladder) {
	l.Packet(0, true, "READ Request psn=16777215 AckReq va=0x7f1234567000 len=2147483648 rkey=0x12345678", false, "")
	l.Packet(1500, false, "READ Response First psn=16777215 msn=1 (4096 B)", false, "for request #1")
	for i := range 61 {
		l.Packet(ib.Instant(2000+500*i), false, "READ Response Middle psn="+strconv.Itoa(i)+" (4096 B)", false, "")
	}
	l.Packet(44e6, false, "READ Response Last psn=61 msn=1 (4096 B)", false, "")
}

// TestLadder draws the same stories on terminals of several widths.
func TestLadder(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(*Ladder)
		opts  Options
	}{
		{"lossy-80.txt", lossySend, Options{}},
		{"lossy-100.txt", lossySend, Options{Terminal: term.Terminal{Width: 100}}},
		{"lossy-ascii-120.txt", lossySend, Options{Terminal: term.Terminal{Width: 120, ASCII: true}}},
		{"lossy-narrow.txt", lossySend, Options{Terminal: term.Terminal{Width: 1}}},
		{"read-80.txt", longLabels, Options{Terminal: term.Terminal{Width: 80}, Fold: 4}},
		{"read-100.txt", longLabels, Options{Terminal: term.Terminal{Width: 100}, Fold: 4}},
		{"read-130.txt", longLabels, Options{Terminal: term.Terminal{Width: 130}, Fold: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLadder("client", "server", c.opts)
			c.story(l)
			var b strings.Builder
			if n, err := l.WriteTo(&b); err != nil || n != int64(b.Len()) {
				t.Fatalf("WriteTo = %d, %v; wrote %d bytes", n, err, b.Len())
			}
			limit := l.opts.Width
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > limit {
					t.Errorf("row of %d cells, %d allowed: %s", n, limit, line)
				}
			}
			golden(t, c.name, b.String())
		})
	}
}

// TestFold: runs are shortened, and what is not similar is drawn.
func TestFold(t *testing.T) {
	packet := func(label string) event { return event{kind: packetEvent, left: true, text: label} }
	middle := func(psn string) event { return packet("SEND Middle psn=" + psn + " (1024 B)") }
	lost := middle("3")
	lost.lost = true
	back := middle("3")
	back.left = false
	for _, c := range []struct {
		name   string
		events []event
		limit  int
		want   []string
	}{
		{"run", []event{middle("1"), middle("2"), middle("3"), middle("4")}, 3,
			[]string{"SEND Middle psn=1 (1024 B)", "... 3 more SEND Middle psn=2..4"}},
		{"at the limit", []event{middle("1"), middle("2"), middle("3")}, 3,
			[]string{middle("1").text, middle("2").text, middle("3").text}},
		{"off", []event{middle("1"), middle("2"), middle("3")}, 0,
			[]string{middle("1").text, middle("2").text, middle("3").text}},
		{"two are never folded", []event{middle("1"), middle("2")}, 1, []string{middle("1").text, middle("2").text}},
		{"wraps around", []event{middle("16777214"), middle("16777215"), middle("0")}, 1,
			[]string{middle("16777214").text, "... 2 more SEND Middle psn=16777215..0"}},
		{"PSN goes back", []event{middle("2"), middle("3"), middle("1"), middle("2")}, 1,
			[]string{middle("2").text, middle("3").text, middle("1").text, middle("2").text}},
		{"lost", []event{middle("1"), middle("2"), lost, middle("4")}, 1,
			[]string{middle("1").text, middle("2").text, lost.text, middle("4").text}},
		{"direction", []event{middle("1"), middle("2"), back}, 1,
			[]string{middle("1").text, middle("2").text, back.text}},
		{"no PSN", []event{packet("CNP"), packet("CNP"), packet("CNP")}, 1, []string{"CNP", "... 2 more CNP"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range fold(c.events, c.limit) {
				got = append(got, e.text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestHostileText: text from a capture cannot steer the terminal, and no length
// of it breaks the columns.
func TestHostileText(t *testing.T) {
	l := NewLadder(strings.Repeat("left", 50), "\x1b[2Jright\n", Options{Terminal: term.Terminal{Width: 80}})
	l.Packet(0, true, "\x1b[31mSEND\r\n"+strings.Repeat("x", 500), true, "\a"+strings.Repeat("é", 300))
	l.Packet(-1<<63, false, "", true, "")
	l.Packet(1<<63-1, false, "ACK psn=99999999999999999999 psn=", false, "")
	l.Local(0, false, "")
	l.Note("")
	var b strings.Builder
	l.WriteTo(&b)
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
			t.Errorf("control character in %q", line)
		}
		if n := utf8.RuneCountInString(line); n > 80+16 { // spans of centuries are wider than their column
			t.Errorf("row of %d cells: %s", n, line)
		}
	}
}
