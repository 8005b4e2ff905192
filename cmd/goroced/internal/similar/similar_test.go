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
		t.Errorf("of nothing: %q", got)
	}
}

func TestClosest(t *testing.T) {
	names := []string{"rnr-nak", "lost-ack", "atomic-cas", "fence"}
	for word, want := range map[string]string{"lost-akc": "lost-ack", "rnr": "rnr-nak", "atomic": "atomic-cas"} {
		if got := Closest(word, names, 2); len(got) != 2 || got[0] != want {
			t.Errorf("%q: %v, want %s first", word, got, want)
		}
	}
	if got := Closest("x", names[:1], 3); !slices.Equal(got, names[:1]) {
		t.Errorf("%v", got)
	}
}
