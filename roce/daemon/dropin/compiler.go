//go:build linux

package dropin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// compiler is a C compiler.
type compiler struct {
	name    string // as it was asked for
	path    string
	args    []string // of $CC, behind its program
	version string
}

// packages names the packages that have a compiler and its headers, by distribution.
const packages = "gcc and libc6-dev (Debian, Ubuntu), gcc and glibc-devel (Fedora, RHEL, SUSE), or gcc (Arch)"

// Compiler returns the path of the C compiler that Build uses; the error, ErrNoCompiler, names the packages to install.
func Compiler(ctx context.Context) (string, error) {
	cc, err := findCompiler(ctx)
	if err != nil {
		return "", err
	}
	return cc.path, nil
}

// findCompiler finds $CC, which may have arguments, or else cc.
func findCompiler(ctx context.Context) (*compiler, error) {
	words := strings.Fields(os.Getenv("CC"))
	if len(words) == 0 {
		words = []string{"cc"}
	}
	cc := &compiler{name: strings.Join(words, " "), args: words[1:]}
	var err error
	if cc.path, err = exec.LookPath(words[0]); err != nil {
		return nil, fmt.Errorf("%w: %s is not on the PATH; install %s, or have the libraries built elsewhere (%s)",
			ErrNoCompiler, words[0], packages, Variable)
	}
	version, err := exec.CommandContext(ctx, cc.path, append(cc.args, "--version")...).Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s --version: %w; install %s", ErrNoCompiler, cc.name, err, packages)
	}
	cc.version = string(version)
	return cc, nil
}

// ours reports whether libraries, their directory and the one above belong to this user or root, and nobody else may
// write to them: programs load them.
func ours(dir string) bool {
	paths := []string{filepath.Dir(dir), dir}
	for _, l := range libraries {
		paths = append(paths, filepath.Join(dir, l.file))
	}
	return !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		if err != nil {
			return true
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		return owner != 0 && int(owner) != os.Geteuid() || info.Mode().Perm()&0o022 != 0
	})
}
