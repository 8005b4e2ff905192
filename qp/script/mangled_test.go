package script

import (
	"flag"
	"io/fs"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/goroce/goroce/qp"
)

var mangles = flag.Int("mangle", 200, "number of mangled scripts")

// TestMangled: no script, however wrong, panics or takes long: anybody may write one. Words of lessons are dropped,
// doubled, exchanged, and replaced by others of their kind.
func TestMangled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	names := Names()
	odd := []string{"0", "1", "-1", "7", "255", "4095", "65536", "4294967295", "18446744073709551615",
		"99999999999999999999",
		"x", "", "ud", "uc", "RTS", "ERR", "none", "P+0", "P-1", "1[0:1024]", "9[5:5]", "1h", "1ns", "100..200"}
	for range *mangles {
		text, err := fs.ReadFile(qp.Lessons, "testdata/"+names[rng.IntN(len(names))]+".txt")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for range 1 + rng.IntN(3) {
			i := 2 + rng.IntN(len(lines)-2)
			lines[i] = mangle(rng, lines[i], odd)
		}
		mangled := strings.Join(lines, "\n")
		s, err := Parse("mangled.txt", mangled)
		if err != nil {
			continue
		}
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%v\n%s\n%s", r, mangled, debug.Stack())
				}
			}()
			_ = s.Run(nil)
		}()
	}
}

// TestOutOfRange: numbers that are out of range are errors of the script.
func TestOutOfRange(t *testing.T) {
	const far = "9223372036854775807" // the largest int
	for _, step := range []string{
		"setup service=ud qkey=7 mtu=0\n    post send 1 len=10",
		"setup service=ud qkey=7 mtu=-1\n    post send 1 len=10",
		"setup\n    region R len=64 late\n    set R+-1 = 41",
		"setup\n    region R len=64 late\n    set R+" + far + " = 41",
		"setup\n    region R len=64\n    mem R+" + far + " = 1",
		"setup\n    post recv 1 len=10\n    wc recv 1 SUCCESS len=10 data=" +
			strings.Repeat("1[0:4194304],", 1000) + "1[0:1]",
	} {
		s, err := Parse("range.txt", "# Out of range\ngroup: errors\n\nA script.\n\n    "+step+"\n")
		if err == nil {
			err = s.Run(nil)
		}
		if err == nil {
			t.Errorf("no error, want one:\n%.200s", step)
		}
		t.Logf("%.300v", err)
	}
}

// mangle changes a word of a line, or the value of a key.
func mangle(rng *rand.Rand, line string, odd []string) string {
	words := strings.Fields(line)
	if !strings.HasPrefix(line, " ") || len(words) == 0 {
		return line
	}
	i, j := rng.IntN(len(words)), rng.IntN(len(words))
	switch key, _, found := strings.Cut(words[i], "="); rng.IntN(6) {
	case 0:
		words[i] = ""
	case 1:
		words[i], words[j] = words[j], words[i]
	case 2:
		words[i] += " " + words[i]
	case 3:
		return line + "\n" + line
	default:
		if words[i] = odd[rng.IntN(len(odd))]; found {
			words[i] = key + "=" + words[i]
		}
	}
	return "    " + strings.Join(words, " ")
}
