// Release makes a release of a commit, for Linux on amd64 and arm64: archives, packages for Debian and for Fedora, a
// container image, a list of what each program is built from (SBOM), and checksums.
//
//	go run -C dist/release . -version v0.1.0 -out /tmp/release
//
// It needs git, Go, and a C compiler for each processor (Debian: gcc, gcc-aarch64-linux-gnu, libc6-dev,
// libc6-dev-arm64-cross). The same commit, version, Go and compilers make the same files, bit for bit: times are that
// of the commit, names are sorted, and all is built in a clone of the commit, whatever the folder.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	version := flag.String("version", "", "version to release, as v0.1.0 or v0.1.0-rc.1")
	revision := flag.String("revision", "HEAD", "commit to release; what is not committed is not released")
	out := flag.String("out", "", "directory to write to, an absolute path; it must not be there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *version, *revision, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes a release in the directory out, which is complete if it is there.
func run(ctx context.Context, version, revision, out string) error {
	if !filepath.IsAbs(out) {
		return fmt.Errorf("-out is %q; it must be an absolute path, as go run -C changes the directory", out)
	}
	if _, err := os.Stat(out); err == nil {
		return fmt.Errorf("-out: %s is there already: remove it, or name another", out)
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	src, err := checkOut(ctx, version, revision, filepath.Join(work, "src"))
	if err != nil {
		return err
	}
	r := &release{source: src, work: work, out: filepath.Join(work, "out")}
	if err := r.make(ctx); err != nil {
		return err
	}
	return os.Rename(r.out, out)
}

// release is a release that is being made.
type release struct {
	*source
	work string // scratch
	out  string // what is released
}

// architectures are those of Go that are released, with the names of their C compilers.
var architectures = []struct{ name, compiler string }{
	{"amd64", "x86_64-linux-gnu-gcc"}, {"arm64", "aarch64-linux-gnu-gcc"},
}

// make makes all files.
func (r *release) make(ctx context.Context) error {
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return err
	}
	common, err := r.common(ctx)
	if err != nil {
		return err
	}
	trees := map[string]tree{}
	for _, arch := range architectures {
		t, err := r.built(ctx, arch.name, arch.compiler)
		if err != nil {
			return fmt.Errorf("%s: %w", arch.name, err)
		}
		t = append(t, common...)
		t.sort()
		trees[arch.name] = t
		if err := errors.Join(r.archive(arch.name, t), r.packages(arch.name, t)); err != nil {
			return fmt.Errorf("%s: %w", arch.name, err)
		}
	}
	if err := r.image(ctx, trees); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.checksums()
}

// number is the version without its v.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// checksums writes the SHA-256 of every file, as sha256sum -c reads them.
func (r *release) checksums() error {
	files, err := os.ReadDir(r.out) // sorted
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return r.write("SHA256SUMS", []byte(list.String()))
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// command runs a program with variables added to its environment, and returns what it prints.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaints.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
