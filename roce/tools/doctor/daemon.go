package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets lists where a daemon listens: the user's own, then the machine's.
func (e *env) sockets() []string {
	list := []string{e.path("/run/goroce/goroced.sock")}
	if e.runtime != "" {
		list = append([]string{e.path(filepath.Join(e.runtime, "goroce/goroced.sock"))}, list...)
	}
	return list
}

// daemonAnswers reports whether there is a daemon for this user.
func (e *env) daemonAnswers() bool {
	for _, s := range e.sockets() {
		if connect(s) == nil {
			return true
		}
	}
	return false
}

// checkDaemon looks for the daemon. It is not needed: programs can open a device of
// their own.
func checkDaemon(e *env) []Finding {
	var found []Finding
	for _, s := range e.sockets() {
		err := connect(s)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err == nil:
			found = append(found, Finding{Text: "a daemon answers at " + s})
		case errors.Is(err, fs.ErrPermission):
			found = append(found, Finding{Status: Fail, Text: "no right to connect to " + s, Remedy: permission(s)})
		case errors.Is(err, unix.ECONNREFUSED):
			found = append(found, Finding{Status: Warn, Text: "nobody answers at " + s + ": its daemon has ended",
				Remedy: "start another (`goroced serve`), or remove what is left of it:", Command: "rm " + s})
		default:
			found = append(found, Finding{Status: Fail, Text: fmt.Sprintf("%s is no socket of goroced: %v", s, err),
				Remedy: "move it out of the way:", Command: fmt.Sprintf("mv %s %s.old", s, s)})
		}
	}
	if len(found) == 0 {
		return ok("none is running; programs open devices of their own (`goroced serve` starts one)")
	}
	return found
}

// permission says how to get the right to connect to a socket.
func permission(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return "ask whoever runs the daemon for access to " + filepath.Dir(name)
	}
	stat := info.Sys().(*syscall.Stat_t)
	group := strconv.Itoa(int(stat.Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return fmt.Sprintf("join its group (usermod -aG %s USER) and log in again; mode is %v", group, info.Mode().Perm())
}

// connect connects to a daemon's socket and hangs up.
func connect(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// EAGAIN: its queue is full, so there is a daemon.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil && err != unix.EAGAIN {
		return os.NewSyscallError("connect", err)
	}
	return nil
}
