package lab

import (
	"context"
	_ "embed"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// Userland is a set of shared libraries for programs in a guest. The zero value means the
// guest's own libraries.
type Userland struct{ dir string }

// userlandDir is the directory of a userland in a guest.
const userlandDir = "/userland"

//go:embed debian13.sh
var debian13Script string

// Debian13 returns the libraries that a program needs for the rdma-core of
// Debian 13, which supports FLUSH, unlike that of Debian 12.
func Debian13(t *testing.T) Userland {
	t.Helper()
	cache := cacheDir()
	cmd := exec.Command("bash", "-s", "--", cache)
	cmd.Stdin = strings.NewReader(debian13Script)
	if out, err := cmd.CombinedOutput(); err != nil {
		require.Missing(t, "the rdma-core of Debian 13 is not in %s and cannot be fetched: %v\n%s", cache, err, out)
	}
	return Userland{filepath.Join(cache, "debian13")}
}

// CopyIn puts the libraries into a guest.
func (u Userland) CopyIn(ctx context.Context, vm *VM) error {
	if u.dir == "" {
		return nil
	}
	if _, err := vm.Output(ctx, "mkdir", "-p", userlandDir); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(u.dir, "*.so*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := vm.CopyIn(ctx, file, userlandDir+"/"+filepath.Base(file)); err != nil {
			return err
		}
	}
	return nil
}

// Command returns the command that runs a program with the libraries, and with more
// variables in its environment. libibverbs uses the first provider that it loads.
func (u Userland) Command(env []string, program string, args ...string) []string {
	command := append([]string{"env"}, env...)
	if u.dir != "" {
		command = append(command, "IBV_DRIVERS="+userlandDir+"/librxe",
			userlandDir+"/ld-linux-x86-64.so.2", "--library-path", userlandDir+":/lib/x86_64-linux-gnu")
	}
	return append(append(command, program), args...)
}
