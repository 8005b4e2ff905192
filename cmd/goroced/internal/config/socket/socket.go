// Package socket says where the daemon's sockets are, for the daemon and for who looks
// for it.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MaxPath is how long a path may be: struct sockaddr_un has room for 108 bytes with a
// zero at the end.
const MaxPath = 107

// Environment variables that name a running daemon's sockets.
const (
	ClientVariable = "GOROCED_SOCKET"
	AdminVariable  = "GOROCED_ADMIN"
)

// Paths are the sockets of a daemon.
type Paths struct {
	Client string // SEQPACKET, for verbs
	Admin  string // STREAM, HTTP, for looking at it
}

func in(dir string) Paths {
	return Paths{filepath.Join(dir, "goroced.sock"), filepath.Join(dir, "goroced-admin.sock")}
}

// system is where root's daemon has its sockets.
var system = in("/run/goroce")

// Default returns where a daemon of that user listens unless it is told otherwise.
// Both paths are "" for an ordinary user without a runtime directory: no other
// directory is sure to be the user's own.
func Default(uid int, getenv func(string) string) Paths {
	if uid == 0 {
		return system
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return in(filepath.Join(dir, "goroce"))
	}
	return Paths{}
}

// Kind is which of a daemon's sockets is meant.
type Kind int

// The two sockets.
const (
	Client Kind = iota
	Admin
)

// Candidates returns where to look for a daemon's socket, in this order: what a flag
// names, what the environment names, the user's own daemon, root's. The first two
// stand alone.
func Candidates(k Kind, flag string, getenv func(string) string) []string {
	variable, of := ClientVariable, func(p Paths) string { return p.Client }
	if k == Admin {
		variable, of = AdminVariable, func(p Paths) string { return p.Admin }
	}
	if flag != "" {
		return []string{flag}
	}
	if path := getenv(variable); path != "" {
		return []string{path}
	}
	var found []string
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		found = append(found, of(in(filepath.Join(dir, "goroce"))))
	}
	return append(found, of(system))
}

// Dial connects to a daemon that runs: to the first of the candidates that answers. It
// fails with a *DialError.
func Dial(k Kind, flag string) (*net.UnixConn, error) {
	return DialAny(k, Candidates(k, flag, os.Getenv))
}

// DialAny connects to the first of these paths that answers.
func DialAny(k Kind, paths []string) (*net.UnixConn, error) {
	network := "unixpacket"
	if k == Admin {
		network = "unix"
	}
	failed := &DialError{Kind: k}
	for _, path := range paths {
		conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
		if err == nil {
			return conn, nil
		}
		failed.Tried = append(failed.Tried, Attempt{path, err})
	}
	return nil, failed
}

// Attempt is a socket that could not be connected to.
type Attempt struct {
	Path string
	Err  error // matches fs.ErrNotExist, fs.ErrPermission, syscall.ECONNREFUSED ...
}

// DialError says that no daemon was reached, where it was looked for, and whether none
// runs or the user lacks rights.
type DialError struct {
	Kind  Kind
	Tried []Attempt
}

func (e *DialError) Error() string {
	texts := make([]string, len(e.Tried))
	advice := "start one with `goroced serve`, or name its socket with --socket or " + ClientVariable
	if e.Kind == Admin {
		advice = "start one with `goroced serve`, or name its admin socket with --admin or " + AdminVariable
	}
	for i, a := range e.Tried {
		texts[i] = a.Path + ": " + a.reason()
		if errors.Is(a.Err, fs.ErrPermission) {
			advice = "ask for membership in the socket's group, or have the daemon run with another socket_mode or " +
				"socket_group"
		}
	}
	return fmt.Sprintf("cannot reach goroced: %s; %s", strings.Join(texts, "; "), advice)
}

// Unwrap returns what the kernel said of each.
func (e *DialError) Unwrap() []error {
	errs := make([]error, len(e.Tried))
	for i, a := range e.Tried {
		errs[i] = a.Err
	}
	return errs
}

func (a Attempt) reason() string {
	switch {
	case errors.Is(a.Err, fs.ErrNotExist):
		return "there is no such socket: no daemon runs here"
	case errors.Is(a.Err, syscall.ECONNREFUSED) && !isSocket(a.Path):
		return "it is no socket"
	case errors.Is(a.Err, syscall.ECONNREFUSED):
		return "nobody listens on this socket: its daemon has died"
	case errors.Is(a.Err, fs.ErrPermission):
		return "this user may not connect to it" + owner(a.Path)
	case errors.Is(a.Err, syscall.EPROTOTYPE):
		return "it is a socket of another type: the client's and the admin socket are not the same"
	}
	return a.Err.Error()
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// owner describes who may.
func owner(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "" // the directory is closed to the user too
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf(" (mode %04o, user %d, group %d)", info.Mode().Perm(), st.Uid, st.Gid)
}
