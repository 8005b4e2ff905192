package rxe

import (
	"flag"
	"hash/fnv"

	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/tests/rxe/lab"
)

// all runs every combination.
var all = flag.Bool("rxe.all", false, "run each link, family and row against each kernel of the rxe lab")

// rowsFor returns the rows of a table that are played against a kernel. Rows of one tool show alike, so a plain run
// plays one of them, and the hash of the tool's name says which: that gives rows of all kinds. With GOROCE_FULL=1 each
// row is played against one of the kernels, by the hash of its name; with -rxe.all against each.
func rowsFor[R any](kernel lab.Kernel, rows []R, tool, name func(R) string) []R {
	byTool := map[string][]R{}
	for _, r := range rows {
		byTool[tool(r)] = append(byTool[tool(r)], r)
	}
	var played []R
	for _, r := range rows {
		same := byTool[tool(r)]
		if *all || require.Full() && runs(kernel, name(r)) ||
			!require.Full() && name(r) == name(same[hash(tool(r))%len(same)]) {
			played = append(played, r)
		}
	}
	return played
}

// runs reports whether a row is one of those that a run in full plays against a kernel.
func runs(kernel lab.Kernel, row string) bool {
	kernels := lab.Kernels()
	return kernels[hash(row)%len(kernels)] == kernel
}

// hash leaves out the lowest bits: they are the parity of the characters' lowest bits, the same for "v4" and "v6".
func hash(s string) int {
	h := fnv.New32a()
	h.Write([]byte(s))
	return int(h.Sum32() >> 16)
}
