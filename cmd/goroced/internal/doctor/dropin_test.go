package doctor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/roce/daemon/server"
)

// TestLibraries: built, not yet, and without what builds them.
func TestLibraries(t *testing.T) {
	e := machine(t, nil)
	wantOK(t, e.examine(), "libraries")
	e.libraries = func() (string, error) { return "", dropin.ErrNotFound }
	if f := pick(e.examine(), "libraries", OK, "`goroced run` does that, with /usr/bin/cc"); f == nil {
		t.Error(text(e.examine()))
	}
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CC", "")
	e.compiler = func() (string, error) { return dropin.Compiler(context.Background()) }
	if f := wantFound(t, e.examine(), "libraries", Warn, "no C compiler"); !errors.Is(errOf(e.compiler()),
		dropin.ErrNoCompiler) {
		t.Error(f)
	}
	e.libraries = func() (string, error) { return "", errors.New("GOROCE_LIB is /x, where libibverbs.so.1 is missing") }
	if f := wantFound(t, e.examine(), "libraries", Warn, "/x"); f.Command != "unset GOROCE_LIB" {
		t.Error(f)
	}
}

func errOf(_ string, err error) error { return err }

// TestMemory: a daemon that may reach memory of processes, and one that may not.
func TestMemory(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		t.Run(fmt.Sprint(allowed), func(t *testing.T) {
			e := machine(t, nil)
			wantOK(t, e.examine(), "memory") // no daemon
			ownSocket := e.login(t)
			newDaemon(t, ownSocket, server.Options{OwnProcesses: allowed})
			if allowed {
				if f := pick(e.examine(), "memory", OK, "reaches memory"); f == nil {
					t.Error(text(e.examine()))
				}
				return
			}
			wantFound(t, e.examine(), "memory", Warn, "permission")
		})
	}
}
