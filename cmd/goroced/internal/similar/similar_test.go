package similar

import (
	"slices"
	"testing"
)

func TestMeant(t *testing.T) {
	kinds := []string{"drop", "delay", "duplicate", "corrupt"}
	for word, want := range map[string]string{
		"drpo": "drop", "dleay": "delay", "duplciate": "duplicate", "corupt": "corrupt", "explode": "", "": "", "x": "",
	} {
		if got := Meant(word, kinds); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Meant("x", nil); got != "" {
		t.Errorf("of nothing: %q, want nothing", got)
	}
}

func TestClosest(t *testing.T) {
	names := []string{"rnr-nak", "lost-ack", "atomic-cas", "fence", "msn", "psn-wrap", "read-psns"}
	for word, want := range map[string][]string{
		"lost-akc": {"lost-ack"}, "rnr": {"rnr-nak"}, "atomic": {"atomic-cas"}, "pns": {"psn-wrap", "read-psns"},
		"nosuch-rule": nil, "x": nil,
	} {
		if got := Closest(word, names, 2); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", word, got, want)
		}
	}
	if got := Closest("pns", names, 1); len(got) != 1 {
		t.Errorf("%v, want one", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"abc", "", 3}, {"psn", "pns", 1}, {"abcd", "badc", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
