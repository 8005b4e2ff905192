//go:build linux

package dropin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// build builds the libraries in the folder lib of work.
func (cc *compiler) build(ctx context.Context, work string) error {
	src, lib := filepath.Join(work, "src"), filepath.Join(work, "lib")
	if err := os.CopyFS(src, sources); err != nil {
		return err
	}
	if err := os.Mkdir(lib, 0o755); err != nil {
		return err
	}
	if err := cc.compile(ctx, src); err != nil {
		return err
	}
	for _, l := range libraries {
		args := append([]string{"-shared", "-pthread"}, l.flags...)
		args = append(args, "-o", filepath.Join(lib, l.file))
		for _, folder := range []string{"client", l.folder} {
			files, err := fs.Glob(sources, path.Join(folder, "*.c"))
			if err != nil {
				return err
			}
			for _, f := range files {
				args = append(args, object(filepath.Join("..", f)))
			}
		}
		if err := cc.run(ctx, filepath.Join(src, l.folder), append(args, "-ldl")...); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(lib, l.file), 0o755); err != nil { // the umask may let others write
			return err
		}
	}
	return nil
}

// compile compiles all sources, as many at a time as there are processors. An object is beside its source.
func (cc *compiler) compile(ctx context.Context, src string) error {
	files, err := fs.Glob(sources, "*/*.c")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for _, f := range files {
		turns <- struct{}{}
		all.Go(func() {
			name := path.Base(f)
			args := slices.Concat(flags, []string{"-c", name, "-o", object(name)})
			if err := cc.run(ctx, filepath.Join(src, path.Dir(f)), args...); err != nil {
				stop(err)
			}
			<-turns
		})
	}
	all.Wait()
	return context.Cause(ctx) // the first failure
}

func object(source string) string { return strings.TrimSuffix(source, ".c") + ".o" }

// run runs the compiler in a folder.
func (cc *compiler) run(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, cc.path, slices.Concat(cc.args, args)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in folder %s: %w: %s; if headers are missing, install %s", cc.name, filepath.Base(dir),
			err, firstLines(string(out)), packages)
	}
	return nil
}

// firstLines returns as much of a compiler's messages as an error has room for.
func firstLines(s string) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", 6)
	return strings.Join(lines[:min(len(lines), 5)], "\n")
}

// lock waits until no other process has locked the directory. Where there are no locks it does not wait.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return func() { _ = f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-again.C:
		}
	}
}
