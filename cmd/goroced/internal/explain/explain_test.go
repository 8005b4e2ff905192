package explain

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/qp/script"
)

// TestList checks that every rule is listed once, under a group that is known.
func TestList(t *testing.T) {
	var out strings.Builder
	if err := List(&out, term.Terminal{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(script.Names(), "cm-handshake", "packet-format", "multicast", "hello-refused") {
		if n := strings.Count(out.String(), "\n  "+name+" "); n != 1 {
			t.Errorf("%s is listed %d times, want 1", name, n)
		}
	}
	for _, group := range groups {
		if !strings.Contains("\n"+out.String(), "\n"+group+":\n  ") {
			t.Errorf("group %q is empty", group)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("%d columns, want at most 80: %s", n, line)
		}
	}
}

// TestRules draws every rule within its width.
func TestRules(t *testing.T) {
	for _, name := range script.Names() {
		s, err := script.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{0, 100} {
			var out strings.Builder
			if err := Rule(&out, name, term.Terminal{Width: width, ASCII: true}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), s.Title[:20]) || !strings.Contains(out.String(), "time") {
				t.Errorf("%s: title or ladder is missing, want %q and a ladder:\n%s", name, s.Title[:20], out.String())
			}
			limit := 80
			if width != 0 {
				limit = width
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line) - 1; n > limit {
					t.Errorf("%s: %d columns, want at most %d: %s", name, n, limit, line)
				}
			}
		}
	}
}

// TestRule shows that packets, losses, reasons, local steps and time arrive in
// the drawing.
func TestRule(t *testing.T) {
	var out strings.Builder
	if err := Rule(&out, "lost-ack", term.Terminal{ASCII: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"left", "right", "SEND Only psn=100 AckReq 1[0:10] ", "X---", "the second receive is not", "67.1 ms",
		"*  completion: send 1 SUCCESS", "completion: recv 1 SUCCESS len=10 data=1[0:10]  *",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestUnknownRule: names that the word is a misspelling of are suggested, and no others.
func TestUnknownRule(t *testing.T) {
	for name, want := range map[string]string{
		"lost-akc": `did you mean "lost-ack"?`, "rrn-nak": `did you mean "rnr-nak"`, "fenec": `did you mean "fence"?`,
		"pns":         `did you mean "psn-wrap"? Like it: read-psns, `,
		"nosuch-rule": `no rule "nosuch-rule"; `, "?": `no rule "?"; `,
	} {
		err := Rule(nil, name, term.Terminal{})
		var unknown *UnknownError
		if !errors.As(err, &unknown) || unknown.Name != name || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files")

// TestOther compares the lessons that are no scripts with golden files.
func TestOther(t *testing.T) {
	for _, l := range other {
		var out strings.Builder
		if err := Rule(&out, l.name, term.Terminal{}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > 80 {
				t.Errorf("%s: %d columns, want at most 80: %s", l.name, n, line)
			}
		}
		path := filepath.Join("testdata", l.name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// TestFind: rules are found by words of their names, titles and texts, whatever the case and the punctuation.
func TestFind(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"psn", "psn-wrap "},
		{"rkey", "send-invalidate "},
		{"R_Key", "send-invalidate "},
		{"connect", "cm-handshake "},
		{"Q_Key", "ud-qkey "},
		{"invariant crc", "A RoCEv2 packet is"}, // only one, which is shown
		{"rep rtu", "REQ, REP, RTU: how"},
		{"igmp", "A datagram to a group"},
	} {
		var out strings.Builder
		if err := Rule(&out, c.words, term.Terminal{}); err != nil {
			t.Errorf("%q: %v", c.words, err)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: no %q in\n%s", c.words, c.want, out.String())
		}
	}
}

// TestFile: somebody's own script is drawn; a claim that is wrong is shown at its line, after what happened before.
func TestFile(t *testing.T) {
	const text = `# My rule
group: mine

Why.

    connect
    left post send 1 len=10
    >x SEND Only psn=100 AckReq 1[0:10]
    left wc send 1 SUCCESS
    nothing
`
	path := filepath.Join(t.TempDir(), "mine.txt")
	run := func(text string) (string, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := File(&out, path, term.Terminal{ASCII: true})
		return out.String(), err
	}
	out, err := run(text)
	if err == nil || !strings.Contains(err.Error(), path+":9: left wc send 1 SUCCESS: no completion came") {
		t.Errorf("error %v, want %q", err, path+":9: left wc send 1 SUCCESS: no completion came")
	}
	for _, want := range []string{"My rule", "X  ", "     8      >x SEND Only psn=100", ">    9      left wc send"} {
		want = strings.Join(strings.Fields(want), " ")
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	out, err = run(strings.ReplaceAll(text, "    left wc send 1 SUCCESS\n", ""))
	if err != nil || !strings.Contains(out, "X") {
		t.Errorf("a right script: %v, want X in it\n%s", err, out)
	}
	if _, err := run("hello"); err == nil || !strings.Contains(err.Error(), ":1: the first line is") {
		t.Errorf("no script: %v, want %q", err, ":1: the first line is")
	}
	if err := File(&strings.Builder{}, path+"x", term.Terminal{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, want %v", err, os.ErrNotExist)
	}
}

// TestOwnScript: the script of a rule is one to begin with, and needs no group.
func TestOwnScript(t *testing.T) {
	var source, out strings.Builder
	if err := Source(&source, "implied-nak"); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "own.txt")
	lines := strings.SplitAfter(source.String(), "\n")
	if err := os.WriteFile(own, []byte(lines[0]+strings.Join(lines[2:], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := File(&out, own, term.Terminal{}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "  this end  ") || strings.Contains(out.String(), "Next: ") {
		t.Errorf("got\n%s\nwant a ladder, and no next rule", &out)
	}
	if err := Source(&source, "implied-nack"); err == nil || !strings.Contains(err.Error(), "implied-nak") {
		t.Errorf("got %v, want what is like it", err)
	}
}

// notTold are the words of scripts that no reader should have to guess at, and units where there are none.
var notTold = regexp.MustCompile(`\bin none\b|is written( nth=\d+)? fails|^ *[●*|│]* *(fetched|placed|fault) |\+-|` +
	`\d\.\d{4,}(us|ms|s)\b|^ *time +us `)

// TestPlain: what a lesson claims is told in words, with times of three digits; the names of the sides are no units.
func TestPlain(t *testing.T) {
	for name := range Rules() {
		var out strings.Builder
		if err := Rule(&out, name, term.Terminal{Width: 200}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if bad := notTold.FindString(line); bad != "" {
				t.Errorf("%s: %q in %s, want none", name, bad, line)
			}
		}
	}
	for text, want := range map[string]string{
		"timer none": "no timer runs", "timer 67.108864ms": "the timer runs out in 67.1 ms",
		"timer 8796.093022208s": "the timer runs out in 8796 s", "placed": "slow memory is written",
		"placed nth=2 fails": "slow memory cannot be written, number 2 of what is under way",
		"fetched fails":      "slow memory cannot be read", "post read 1 to=R+-1": "post read 1 to=R-1",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestBadges: each rule says whose it is, and the list marks those that are not IBTA's.
func TestBadges(t *testing.T) {
	var list strings.Builder
	if err := List(&list, term.Terminal{Width: 200}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"lost-packet": "IBTA", "inline": "Linux", "sack": "goroce", "kept": "goroce", "write-train": "goroce",
		"tail-probe": "goroce", "in-flight": "goroce", "late-memory": "goroce", "packet-format": "IBTA",
		"hello-refused": "goroce",
	} {
		var out strings.Builder
		if err := Rule(&out, name, term.Terminal{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "\n["+want+"] ") {
			t.Errorf("%s: want the badge %s:\n%s", name, want, out.String())
		}
		line := regexp.MustCompile(`(?m)^  ` + name + ` .*$`).FindString(list.String())
		if marked := strings.HasSuffix(line, "["+want+"]"); marked != (want != "IBTA") {
			t.Errorf("the list has %q, want the mark of %s", line, want)
		}
	}
}
