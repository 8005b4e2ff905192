package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/internal/socket"
)

// ErrInUse matches every [InUseError] with errors.Is.
var ErrInUse = errors.New("socket in use")

// InUseError says that the path of a socket is in use.
type InUseError struct {
	Path string
	Peer *Peer  // process that listens there; nil if unknown
	What string // kind of socket, for people
}

func (e *InUseError) Error() string {
	who := ""
	if e.Peer != nil {
		who = fmt.Sprintf(" (process %d of user %d)", e.Peer.PID, e.Peer.UID)
	}
	return fmt.Sprintf("socket %s: %s%s; end it with `goroced stop`, take its place with --replace, or choose another "+
		"path with --socket and --admin", e.Path, e.What, who)
}

// Is makes errors.Is(err, ErrInUse) true.
func (e *InUseError) Is(target error) bool { return target == ErrInUse }

// sockets are the sockets that the daemon listens on.
type sockets struct {
	client, admin *net.UnixListener
	metrics       net.Listener // TCP; nil if none is configured
	locks         []*os.File
}

func (s *sockets) close() {
	for _, l := range []*net.UnixListener{s.client, s.admin} {
		if l != nil {
			_ = l.Close() // removes the file unless the service manager made it
		}
	}
	if s.metrics != nil {
		_ = s.metrics.Close()
	}
	for _, f := range s.locks {
		_ = f.Close()
	}
}

// listen uses the sockets that the service manager has passed, and creates the missing ones and that for metrics.
func listen(c *config.Config, log *slog.Logger) (s *sockets, err error) {
	s = &sockets{}
	defer func() {
		if err != nil {
			s.close()
			s = nil
		}
	}()
	if err := s.activated(); err != nil {
		return s, err
	}
	for _, w := range []struct {
		l             **net.UnixListener
		network, path string
	}{{&s.client, "unixpacket", c.Socket}, {&s.admin, "unix", c.Admin}} {
		if *w.l != nil {
			log.Debug("socket activation", "socket", (*w.l).Addr())
			continue
		}
		if *w.l, err = s.bind(w.network, w.path, c); err != nil {
			return s, err
		}
	}
	if c.Metrics.IsValid() {
		if s.metrics, err = net.Listen("tcp", c.Metrics.String()); err != nil {
			return s, fmt.Errorf("metrics.listen: %w", err)
		}
	}
	return s, nil
}

// bind creates a socket, replacing one that a dead daemon has left. A lock next to it, which the kernel releases when
// its holder dies, prevents two daemons from replacing each other's socket.
func (s *sockets) bind(network, path string, c *config.Config) (*net.UnixListener, error) {
	if err := socket.Take(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	s.locks = append(s.locks, lock)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, &InUseError{path, listener(network, path), "another daemon has it"}
	}
	if err := clear(network, path); err != nil {
		return nil, err
	}
	// Nobody must be able to connect before the permissions are set.
	before := unix.Umask(0o177)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	unix.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := permit(path, c); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// clear removes the socket file of a dead process, and nothing else.
func clear(network, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &InUseError{Path: path, What: "there is a file that is no socket"}
	}
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	switch {
	case err == nil:
		defer conn.Close()
		peer, _ := peerOf(conn)
		return &InUseError{path, peer, "another program listens on it"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, syscall.EPROTOTYPE):
		return &InUseError{Path: path, What: "another program listens on it, with a socket of another type"}
	}
	return fmt.Errorf("socket %s is there already: %w", path, err)
}

// listener returns the process that listens on a path; nil if that cannot be found out.
func listener(network, path string) *Peer {
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil
	}
	defer conn.Close()
	peer, _ := peerOf(conn)
	return peer
}

// permit sets group and permissions of a socket.
func permit(path string, c *config.Config) error {
	if c.SocketGroup != "" {
		gid, err := group(c.SocketGroup)
		if err != nil {
			return fmt.Errorf("socket_group %s: %w", c.SocketGroup, err)
		}
		if err := os.Lchown(path, -1, gid); err != nil {
			return fmt.Errorf("socket_group %s: %w; an ordinary user may name a group only that it is in",
				c.SocketGroup, err)
		}
	}
	return os.Chmod(path, c.SocketMode)
}

func group(name string) (int, error) {
	if gid, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}
