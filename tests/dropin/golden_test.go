package dropin

import (
	"os"
	"strings"
	"testing"
)

// deviation is what the library prints instead of a line of the kernel's, and why.
type deviation struct{ ours, why string }

// compareWithKernel compares what a program has printed with what it prints on a kernel, as tests/rxe has
// recorded it in a file. alike makes lines equal that say the same.
func compareWithKernel(t *testing.T, file, out string, err error, deviations map[string]deviation,
	alike func(line string) string) {
	t.Helper()
	golden, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatal(readErr)
	}
	want, got := strings.Split(string(golden), "\n"), strings.Split(out, "\n")
	if err != nil || len(got) != len(want) {
		t.Fatalf("got %d lines, want %d: %v\n%s", len(got), len(want), err, out)
	}
	used := 0
	for i, line := range want {
		if d, ok := deviations[line]; ok {
			line = d.ours
			used++
		}
		if alike(got[i]) != alike(line) {
			t.Errorf("got\n%s, want\n%s; the kernel\n%s", got[i], line, want[i])
		}
	}
	if used != len(deviations) {
		t.Errorf("got %d deviations of lines that the kernel prints, want %d", used, len(deviations))
	}
}
