package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A daemon says what programs must know before they connect in files of the directory beside its client socket. Daemons
// that say nothing are taken to be in the program's network namespace.
const (
	besides = ".d" // of the directory's name, behind that of the socket
	// NamespaceFile has the number of the daemon's network namespace, as Namespace returns it.
	NamespaceFile = "netns"
	// AdminFile has the path of the daemon's admin socket.
	AdminFile = "admin"
)

// said returns what the daemon says in a file beside its socket, "" if it says nothing.
func said(socket, file string) string {
	text, err := os.ReadFile(filepath.Join(socket+besides, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Namespace returns the number of the calling thread's network namespace, the inode of /proc/thread-self/ns/net; 0 if
// /proc does not show it.
func Namespace() uint64 {
	info, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return 0
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// NamespaceError says that a daemon is not asked because its devices are in another network namespace. It is never of a
// socket that the user has named.
type NamespaceError struct {
	Daemon, Own uint64 // as Namespace returns them
}

func (e *NamespaceError) Error() string {
	return fmt.Sprintf("its daemon is in the network namespace net:[%d], and this program in net:[%d]", e.Daemon, e.Own)
}

// foreign returns a *NamespaceError if the daemon at a client socket says that it is in another network namespace.
func foreign(socket string) error {
	theirs, err := strconv.ParseUint(said(socket, NamespaceFile), 10, 64)
	if own := Namespace(); err == nil && own != 0 && own != theirs {
		return &NamespaceError{theirs, own}
	}
	return nil
}

// inNamespace returns the directory, in one for daemons, for the sockets of a daemon in the calling thread's network
// namespace, where a daemon of another namespace has those of the directory itself.
func inNamespace(dir string) string { return filepath.Join(dir, fmt.Sprintf("netns-%d", Namespace())) }

// free returns the sockets in a directory for daemons that a daemon in this network namespace may have: those of the
// directory itself, or, if a daemon of another namespace listens there, those of inNamespace.
func free(dir string) Paths {
	if p := in(dir); foreign(p.Client) == nil || !listens(p.Client) {
		return p
	}
	return in(inNamespace(dir))
}

// listens reports whether there is somebody at a client socket.
func listens(path string) bool {
	conn, err := net.Dial("unixpacket", path)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// adminOf returns the admin socket of the daemon at a client socket: where it says, or else beside it under the usual
// name, NAME-admin.sock.
func adminOf(client string) string {
	if path := said(client, AdminFile); path != "" {
		return path
	}
	return strings.TrimSuffix(client, ".sock") + "-admin.sock"
}
