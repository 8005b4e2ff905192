package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// unused is the beginning of the names of files that programs remove when they use RDMA.
const unused = "unused."

// mark adds the variable by which the preloaded library knows that this process, which becomes the program, is the
// first one, and tells people at its end if nothing has used RDMA (roce/daemon/dropin/client/used.c). A program that
// does not load the library, as one that is linked statically, removes no file and says nothing. Without a place for
// the file nothing is said, either. undo is for a program that is not run after all.
func mark(environ []string) (marked []string, undo func()) {
	undo = func() {}
	if outer := os.Getenv(runVariable); strings.HasPrefix(filepath.Base(outer), unused) {
		_ = os.Remove(outer) // a run within a run tells of itself
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, runVariable+"=")
	})
	p := ownPlace()
	if p.take() != nil {
		return environ, undo
	}
	p.sweep()
	path := filepath.Join(string(p), unused+strconv.Itoa(os.Getpid()))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return environ, undo
	}
	_ = f.Close() // it is empty
	return append(environ, runVariable+"="+path), func() { _ = os.Remove(path) }
}

// runVariable is read by the preloaded library.
const runVariable = "GOROCE_RUN"

// sweep removes files of programs that have ended without a word, as when they are killed.
func (p place) sweep() {
	files, _ := filepath.Glob(filepath.Join(string(p), unused+"*")) // fails for a bad pattern only
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(f), unused))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.Remove(f) // another may have been faster
		}
	}
}
