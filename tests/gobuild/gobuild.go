// Package gobuild builds programs for tests.
package gobuild

import (
	"fmt"
	"os/exec"
	"slices"
)

// Program builds the program of a package to a path, with flags of `go build`.
//
// It copies what `go run` would run: go keeps that in its cache, so tests of several packages do not link the same
// program again, as `go build` does, which takes two seconds of processor time for goroced.
func Program(path, pkg string, flags ...string) error {
	args := append(slices.Concat([]string{"run", "-exec", "cp"}, flags), pkg, path)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}
