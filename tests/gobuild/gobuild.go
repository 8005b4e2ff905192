// Package gobuild builds programs for tests.
package gobuild

import (
	"fmt"
	"os/exec"
	"slices"
)

// Program builds the program whose package is in a folder to an absolute path, with flags of `go build`. The folder may
// be of another module than the test.
//
// It copies what `go run` would run: go keeps that in its cache, so tests of several packages do not link the same
// program again, as `go build` does, which takes two seconds of processor time for goroced.
func Program(path, folder string, flags ...string) error {
	cmd := exec.Command("go", append(slices.Concat([]string{"run", "-exec", "cp"}, flags), ".", path)...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return nil
}
