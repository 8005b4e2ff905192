// Package launch prepares what a program in C needs to use the daemon as it is, for `goroced run` and `goroced env`: a
// daemon, the libraries (package dropin), and environment variables that name both.
//
//	program, err := launch.Find("ibv_rc_pingpong")
//	ready, err := launch.Prepare(ctx, socket)
//	err = ready.Exec(program, []string{"ibv_rc_pingpong", "-g", "0"}) // in place of this process
//
// The daemon is one that runs, or else one that is started for this user, which ends a minute after its last client.
// Until the program ends it counts as a client, by a hold that Exec leaves it (socket.Hold). The program inherits
// nothing else, and the hold is of no other use, to whatever child or sandbox inherits it from the program.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

// Ready is what a program needs.
type Ready struct {
	dropin.Environment
	hold *os.File // of the daemon
}

// Prepare finds or starts a daemon, and finds or builds the libraries. If path is not "", or the variable
// GOROCED_SOCKET is set, the daemon is the one at that socket, and none is started. say is called with what people
// should know meanwhile, a line each.
func Prepare(ctx context.Context, path string, say func(string)) (*Ready, error) {
	if _, err := dropin.Find(ctx); errors.Is(err, dropin.ErrNotFound) {
		if cc, err := dropin.Compiler(ctx); err == nil {
			say("two libraries for programs in C are being built, once, with " + cc)
		}
	}
	libs, err := dropin.Libraries(ctx)
	if err != nil {
		return nil, err
	}
	if err := check(libs); err != nil {
		return nil, err
	}
	conn, err := connect(ctx, path, say)
	if err != nil {
		return nil, err
	}
	e := dropin.Environment{Socket: conn.RemoteAddr().String(), Libraries: libs}
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errNoAnswer)
	defer cancel()
	hold, err := socket.Hold(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Socket, err)
	}
	return &Ready{e, hold}, nil
}

// Find returns the path of a program, which it looks for as a shell does. The error is an *ExecError.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &ExecError{name, err}
	}
	return path, nil
}

// Exec runs the program at a path in place of this process, with these arguments, the first of which names it. It
// returns only with an error, an *ExecError.
func (r *Ready) Exec(program string, args []string) error {
	environ := r.Of(os.Environ())
	err := needs(program, rdmacm, environ)
	if err == nil {
		err = r.keep()
	}
	if err == nil {
		marked, undo := mark(environ)
		err = syscall.Exec(program, args, marked)
		undo()
	}
	return &ExecError{args[0], err}
}

// firstKept is the lowest number of the descriptor that a program inherits: the low numbers stay free for the program.
const firstKept = 100

// keep duplicates the hold without close-on-exec, so that it stays open across Exec.
func (r *Ready) keep() error {
	_, err := unix.FcntlInt(r.hold.Fd(), unix.F_DUPFD, firstKept)
	return os.NewSyscallError("fcntl", err)
}

// ExecError says that a program cannot be run.
type ExecError struct {
	Program string
	Err     error
}

func (e *ExecError) Error() string {
	var lookup *exec.Error
	if errors.As(e.Err, &lookup) {
		return e.Err.Error()
	}
	return fmt.Sprintf("run %s: %v", e.Program, e.Err)
}

// Unwrap returns the cause.
func (e *ExecError) Unwrap() error { return e.Err }

// ExitStatus returns what shells exit with: 127 if there is no such program, 126 if it cannot be run. A missing library
// is 127 too, as the dynamic linker has it.
func (e *ExecError) ExitStatus() int {
	var missing *MissingLibraryError
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, fs.ErrNotExist) || errors.As(e.Err, &missing) {
		return 127
	}
	return 126
}

// Locate returns the environment for the daemon that answers. If none does, offline says why, and the socket is the
// named one, or else that of the daemon that Prepare would start.
func Locate(ctx context.Context, path string) (e dropin.Environment, offline, err error) {
	if e.Libraries, err = dropin.Libraries(ctx); err != nil {
		return e, nil, err
	}
	conn, offline := dial(ctx, candidates(path))
	switch {
	case offline == nil:
		e.Socket = conn.RemoteAddr().String()
		_ = conn.Close()
	case named(path) != "":
		e.Socket = named(path)
	default:
		if err := ownPlace().take(); err != nil {
			return e, offline, err
		}
		e.Socket = ownPlace().socket()
	}
	return e, offline, check(e.Libraries)
}

// check refuses a directory of libraries whose name the dynamic linker would take for several.
func check(libraries string) error {
	if strings.ContainsAny(libraries, " :;") {
		return fmt.Errorf("the libraries are in %q, but LD_PRELOAD takes no directory with a space, colon or "+
			"semicolon: copy them to another, and set %s to that", libraries, dropin.Variable)
	}
	return nil
}
