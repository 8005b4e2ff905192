//go:build linux

// Package dropin has the libraries by which programs in C use the daemon without changes: libibverbs.so.1, and a small
// library to preload that shows the device below /sys/class/infiniband and /dev/infiniband.
//
//	libs, err := dropin.Libraries(ctx)          // as `goroced run` does
//	libs, err := dropin.Build(ctx, "/tmp/libs") // build them there
//	cmd.Env = (&dropin.Environment{Socket: path, Libraries: libs}).Of(os.Environ())
//
// Their sources are in the folders verbs and sys, plain C, and in every program that imports this package. A C compiler
// builds them once for each user. A directory of libraries that has its final name is complete.
package dropin

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

//go:embed client verbs sys
var sources embed.FS

// The libraries, as files in one directory.
const (
	Verbs = "libibverbs.so.1"
	Sys   = "libgoroce-sys.so"
)

// Variable is the environment variable that names the directory of the libraries.
const Variable = "GOROCE_LIB"

var (
	// ErrNotFound says that the libraries are nowhere where Find looks.
	ErrNotFound = errors.New("the libraries for programs in C are not built")
	// ErrNoCompiler says that there is no C compiler to build them.
	ErrNoCompiler = errors.New("no C compiler")
)

// libraries lists what is built. Each library is linked from the objects of all sources in its folder and in folder
// client.
var libraries = []struct {
	folder, file string
	flags        []string
}{
	{"verbs", Verbs, []string{"-Wl,-soname," + Verbs, "-Wl,--version-script=libibverbs.map"}},
	{"sys", Sys, nil},
}

// flags are for all sources.
var flags = []string{"-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-pipe", "-Wall", "-Wextra"}

// Libraries returns the directory of the libraries: what Find finds, or else what Build builds in the user's cache.
func Libraries(ctx context.Context) (string, error) {
	dir, err := Find(ctx)
	if !errors.Is(err, ErrNotFound) {
		return dir, err
	}
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	if dir, err = Build(ctx, cache); errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w; set XDG_CACHE_HOME to a directory of yours, or %s to where the libraries are", err,
			Variable)
	}
	return dir, err
}

// Find returns the directory of the libraries: $GOROCE_LIB, which then must have them; ../lib/goroce beside the
// program; or the one that Build has made in the user's cache from the sources of this program. The error is
// ErrNotFound if there is none.
func Find(ctx context.Context) (string, error) {
	if dir := os.Getenv(Variable); dir != "" {
		if !complete(dir) {
			return "", fmt.Errorf("%s is %s, where %s or %s is missing: %w", Variable, dir, Verbs, Sys, fs.ErrNotExist)
		}
		return filepath.Abs(dir)
	}
	if program, err := os.Executable(); err == nil {
		if dir := filepath.Join(filepath.Dir(program), "../lib/goroce"); complete(dir) {
			return dir, nil
		}
	}
	cache, err := Cache()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	// If there is a compiler, what it has built counts; otherwise what any compiler has built.
	pattern := key(nil) + "-*"
	if cc, err := findCompiler(ctx); err == nil {
		pattern = key(nil) + "-" + key(cc)
	}
	found, _ := filepath.Glob(filepath.Join(cache, pattern)) // the pattern is good
	for _, dir := range found {
		if complete(dir) && ours(dir) {
			return dir, nil
		}
	}
	return "", ErrNotFound
}

// Cache returns the directory in which Libraries builds, that of the user.
func Cache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(dir) {
		return "", fmt.Errorf("no directory for the libraries: set HOME or XDG_CACHE_HOME, or %s to where they are",
			Variable)
	}
	return filepath.Join(dir, "goroce"), nil
}

func complete(dir string) bool {
	for _, l := range libraries {
		if info, err := os.Stat(filepath.Join(dir, l.file)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// Build builds the libraries and returns their directory in dir, whose name is a key of the sources and the compiler.
// If it is there already nothing is built. If several processes come at once, one of them builds, and the others take
// what it has built.
func Build(ctx context.Context, dir string) (string, error) {
	cc, err := findCompiler(ctx)
	if err != nil {
		return "", err
	}
	final := filepath.Join(dir, key(nil)+"-"+key(cc))
	if complete(final) && ours(final) {
		return final, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build libraries: %w", err)
	}
	unlock, err := lock(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("build libraries: wait for another process that does: %w", err)
	}
	defer unlock()
	if complete(final) && ours(final) {
		return final, nil
	}
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", fmt.Errorf("build libraries: %w", err)
	}
	defer os.RemoveAll(work)
	if err := cc.build(ctx, work); err != nil {
		return "", fmt.Errorf("build libraries: %w", err)
	}
	if err := os.Rename(filepath.Join(work, "lib"), final); err != nil && !complete(final) {
		return "", fmt.Errorf("build libraries: %w", err)
	}
	if !ours(final) {
		return "", fmt.Errorf("build libraries: %s, the directory above or a library is another user's, or others may "+
			"write to it: %w", final, fs.ErrPermission)
	}
	return final, nil
}

// key returns a key of a compiler, or of the sources and how they are built if cc is nil.
func key(cc *compiler) string {
	h := sha256.New()
	if cc != nil {
		fmt.Fprintln(h, cc.path, cc.args, cc.version)
		return hex.EncodeToString(h.Sum(nil)[:6])
	}
	fmt.Fprintln(h, flags, libraries)
	_ = fs.WalkDir(sources, ".", func(name string, d fs.DirEntry, _ error) error { // it is in memory: no errors
		if !d.IsDir() {
			text, _ := sources.ReadFile(name)
			fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)[:10])
}
