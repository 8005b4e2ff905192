package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestRowOnceMore runs rows in a child process. They fail as often as plays says.
func TestRowOnceMore(t *testing.T) {
	for _, c := range []struct {
		plays  string // for each row, how many of its tries fail, and how: e Errorf, f Fatal, c in a cleanup
		passes bool
		noted  int // rows in the file
	}{
		{"0e", true, 0}, {"1e", true, 1}, {"1f", true, 1}, {"1c", true, 1},
		{"2e", false, 1}, {"2f", false, 1}, {"2c", false, 1},
		{"1e 0e 1f 1c", true, 3}, {"1e 1e 1f 1c", false, 3}, {"1e 1e 1f 0e 1c", false, 3},
	} {
		file := filepath.Join(t.TempDir(), "retried")
		cmd := exec.Command(os.Args[0], "-test.run=^TestRowPlay$", "-test.v")
		cmd.Env = append(os.Environ(), "LAB_TEST_ROWS="+c.plays, "GOROCE_RETRIED="+file)
		out, err := cmd.CombinedOutput()
		noted, _ := os.ReadFile(file) // does not exist if no row failed
		if passed := err == nil; passed != c.passes || strings.Count(string(noted), "\n") != c.noted {
			t.Errorf("rows %q: %v, want it to pass: %v, noted %q, want %d\n%s", c.plays, err, c.passes, noted, c.noted,
				out)
		}
	}
}

// TestRowPlay is the child of TestRowOnceMore.
func TestRowPlay(t *testing.T) {
	for i, play := range strings.Fields(os.Getenv("LAB_TEST_ROWS")) {
		try := 0
		Row(t, strconv.Itoa(i), func(t testing.TB) {
			try++
			if try > int(play[0]-'0') {
				return
			}
			switch play[1] {
			case 'e':
				t.Errorf("try %d", try)
			case 'f':
				t.Fatal("try", try)
			case 'c':
				t.Cleanup(func() {
					if t.Context().Err() == nil {
						t.Error("the context has not ended")
					}
					t.Fatalf("try %d", try)
				})
			}
		})
	}
}
