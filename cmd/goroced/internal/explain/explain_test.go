package explain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/qp/script"
)

// TestList checks that every rule is listed once, under a group that is known.
func TestList(t *testing.T) {
	var out strings.Builder
	if err := List(&out, term.Terminal{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range script.Names() {
		if n := strings.Count(out.String(), "\n  "+name+" "); n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	for _, group := range groups {
		if !strings.Contains("\n"+out.String(), "\n"+group+":\n  ") {
			t.Errorf("group %q is empty", group)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, line)
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
				t.Errorf("%s: title or ladder is missing:\n%s", name, out.String())
			}
			limit := 80
			if width != 0 {
				limit = width
			}
			for line := range strings.Lines(out.String()) {
				if n := utf8.RuneCountInString(line) - 1; n > limit {
					t.Errorf("%s: %d columns, more than %d: %s", name, n, limit, line)
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

func TestUnknownRule(t *testing.T) {
	for name, want := range map[string]string{
		"lost-akc": "lost-ack", "rnr": "rnr-nak", "FENCE": "fence", "atomic": "atomic-cas", "": "",
	} {
		err := Rule(nil, strings.ToLower(name)+"?", term.Terminal{})
		var unknown *UnknownError
		if !errors.As(err, &unknown) || len(unknown.Closest) != mostClose {
			t.Fatalf("%q: %v", name, err)
		}
		if want != "" && !slices.Contains(unknown.Closest, want) {
			t.Errorf("%q: closest are %v, without %s", name, unknown.Closest, want)
		}
	}
}
