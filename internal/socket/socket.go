// Package socket has the paths of the daemon's sockets, for the daemon and its clients.
package socket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MaxPath is the largest length of a path: struct sockaddr_un has 108 bytes, and the path ends with a zero byte.
const MaxPath = 107

// Environment variables with the paths of a running daemon's sockets.
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

// system are the sockets of root's daemon.
var system = in("/run/goroce")

// Default returns the default sockets of a user's daemon: in the runtime directory (Runtime), and in a private one for
// an ordinary user who has none. If a daemon of another network namespace listens there, they are in a directory of
// this namespace below.
func Default(uid int, getenv func(string) string) Paths {
	if uid == 0 {
		return free(filepath.Dir(system.Client))
	}
	if dir, _ := Runtime(uid, getenv); dir != "" {
		return free(filepath.Join(dir, "goroce"))
	}
	if own := Private(uid); IsOwn(own) {
		return free(own)
	}
	return in(Private(uid)) // Take makes it, or says why not
}

// Kind selects one of a daemon's sockets.
type Kind int

// The two sockets of a daemon.
const (
	Client Kind = iota
	Admin
)

// named returns the only path where to look for a daemon's socket: that of a flag, or else of the environment variable;
// "" if neither is set. The variable of the client socket leads to the same daemon's admin socket, too.
func named(k Kind, flag string, getenv func(string) string) string {
	if k == Client {
		return cmp.Or(flag, getenv(ClientVariable))
	}
	path := cmp.Or(flag, getenv(AdminVariable))
	if client := getenv(ClientVariable); path == "" && client != "" {
		return adminOf(client)
	}
	return path
}

// Candidates returns the paths where to look for a daemon's socket, in order. If a flag is set, that is the only one,
// else if an environment variable is set, its value; otherwise they are those of the user's own daemon, in the runtime
// directory and the private one, and of root's, without those of daemons in another network namespace (Foreign).
func Candidates(k Kind, flag string, getenv func(string) string) []string {
	found, _ := search(k, flag, getenv)
	return found
}

// Foreign returns the sockets that Candidates passes over, with a *NamespaceError each.
func Foreign(k Kind, flag string, getenv func(string) string) []Attempt {
	_, foreign := search(k, flag, getenv)
	return foreign
}

// search returns Candidates and Foreign.
func search(k Kind, flag string, getenv func(string) string) (found []string, passed []Attempt) {
	if path := named(k, flag, getenv); path != "" {
		return []string{path}, nil
	}
	var dirs []string
	if dir, _ := Runtime(os.Geteuid(), getenv); dir != "" {
		dirs = append(dirs, filepath.Join(dir, "goroce"))
	}
	if own := Private(os.Geteuid()); IsOwn(own) {
		dirs = append(dirs, own)
	}
	for _, dir := range append(dirs, filepath.Dir(system.Client)) {
		places := []Paths{in(dir)}
		if below := inNamespace(dir); isDir(below) {
			places = append(places, in(below))
		}
		for _, p := range places {
			path := p.Client
			if k == Admin {
				path = p.Admin
			}
			if err := foreign(p.Client); err != nil {
				passed = append(passed, Attempt{path, err})
				continue
			}
			found = append(found, path)
		}
	}
	return found, passed
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// Dial connects to the first of the candidates that answers. The error is a *DialError.
func Dial(k Kind, flag string) (*net.UnixConn, error) {
	return DialContext(context.Background(), k, flag)
}

// DialContext is Dial until ctx ends. Context errors are those of Connect.
func DialContext(ctx context.Context, k Kind, flag string) (*net.UnixConn, error) {
	paths, passed := search(k, flag, os.Getenv)
	conn, err := DialAny(ctx, k, paths)
	if failed := new(DialError); errors.As(err, &failed) && named(k, flag, os.Getenv) == "" {
		_, failed.Ignored = Runtime(os.Geteuid(), os.Getenv)
		failed.Tried = append(failed.Tried, passed...)
	}
	return conn, err
}

// DialAny connects to the first of these paths that answers. Context errors are those of Connect.
func DialAny(ctx context.Context, k Kind, paths []string) (*net.UnixConn, error) {
	failed := &DialError{Kind: k}
	for _, path := range paths {
		conn, err := Connect(ctx, k, path)
		if err == nil {
			return conn, nil
		}
		failed.Tried = append(failed.Tried, Attempt{path, err})
	}
	return nil, failed
}

// Attempt is a socket that Dial could not connect to.
type Attempt struct {
	Path string
	Err  error // matches fs.ErrNotExist, fs.ErrPermission, syscall.ECONNREFUSED ...
}

// DialError says that no daemon could be reached, which sockets were tried, and whether none runs or the user has no
// permission.
type DialError struct {
	Kind    Kind
	Tried   []Attempt
	Ignored error // why the directory in XDG_RUNTIME_DIR was not looked into; nil if it was
}

func (e *DialError) Error() string {
	texts := make([]string, len(e.Tried))
	advice := "start one with `goroced serve`, or name its socket by " + ClientVariable + " (--socket of the tools)"
	if e.Kind == Admin {
		advice = "start one with `goroced serve`, or name its admin socket by " + AdminVariable +
			" (--admin of the tools)"
	}
	for i, a := range e.Tried {
		texts[i] = a.Path + ": " + a.reason()
		if other := new(NamespaceError); errors.As(a.Err, &other) {
			advice = strings.Replace(advice, "`goroced serve`", "`goroced serve` in this namespace", 1)
		}
		if errors.Is(a.Err, fs.ErrPermission) {
			advice = joinGroup(a.Path)
		}
	}
	if e.Ignored != nil {
		texts = append(texts, e.Ignored.Error())
	}
	return fmt.Sprintf("cannot reach goroced: %s; %s", strings.Join(texts, "; "), advice)
}

// Unwrap returns the errors of the attempts.
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
		return "this user may not connect to it" + permits(a.Path)
	case errors.Is(a.Err, syscall.EPROTOTYPE):
		return "it is a socket of another type: the client's and the admin socket are not the same"
	}
	return a.Err.Error()
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// joinGroup says how a user gets the right to connect to a socket.
func joinGroup(path string) string {
	const other = "have the daemon run with another socket_mode or socket_group"
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o020 == 0 {
		return other
	}
	gid := info.Sys().(*syscall.Stat_t).Gid
	if gid == 0 {
		return other
	}
	return fmt.Sprintf("join its group (`usermod -aG %s USER`) and log in again, or %s", groupName(gid), other)
}

// groupName returns the name of a group, or its number if it has none.
func groupName(gid uint32) string {
	number := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(number); err == nil {
		return g.Name
	}
	return number
}

// permits says which users may connect.
func permits(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "" // the user has no access to the directory either
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf(" (mode %04o, user %d, group %s)", info.Mode().Perm(), st.Uid, groupName(st.Gid))
}
