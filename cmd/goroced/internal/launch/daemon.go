package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/cmd/goroced/internal/config"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/host"
)

// IdleExit is how long a daemon that is started goes on without a client.
const IdleExit = time.Minute

// startLimit is how long a daemon may take to start, to greet, and to give a hold.
const startLimit = 20 * time.Second

// errNoAnswer is the cause that ends the wait for a daemon.
var errNoAnswer = fmt.Errorf("no answer within %v: it hangs, or is stopped", startLimit)

// named returns the socket that the user has named, "" if there is none.
func named(path string) string {
	if path != "" {
		return path
	}
	return os.Getenv(socket.ClientVariable)
}

// candidates returns the sockets to try.
func candidates(path string) []string { return socket.Candidates(socket.Client, path, os.Getenv) }

// connect returns a connection on which a daemon has said hello.
func connect(ctx context.Context, path string, say func(string)) (*net.UnixConn, error) {
	conn, err := dial(ctx, candidates(path))
	if err == nil || named(path) != "" || !absent(err) {
		return conn, err
	}
	place := ownPlace()
	unlock, err := place.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Another process may have started one while this one waited for the lock.
	if conn, err = dial(ctx, candidates(path)); err == nil || !absent(err) {
		return conn, err
	}
	conn, started := place.start(ctx, say)
	if started != nil && errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("a daemon runs that is not for this user: %w; and no other starts: %w", err, started)
	}
	return conn, started
}

// dial connects to the first of these sockets whose daemon answers.
func dial(ctx context.Context, paths []string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errNoAnswer)
	defer cancel()
	conn, err := socket.DialAny(ctx, socket.Client, paths)
	if err != nil {
		return nil, err
	}
	if _, err := socket.Greet(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", conn.RemoteAddr(), err)
	}
	return conn, nil
}

// absent reports whether an error says that there is no daemon for this user, or that it has just ended.
func absent(err error) bool {
	if failed := new(socket.DialError); errors.As(err, &failed) && len(failed.Tried) == 0 {
		return true // all daemons are in other network namespaces
	}
	for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE,
		io.EOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// place is a directory for the sockets and the log of a user's daemon.
type place string

func (p place) socket() string { return filepath.Join(string(p), "goroced.sock") }
func (p place) admin() string  { return filepath.Join(string(p), "goroced-admin.sock") }
func (p place) log() string    { return filepath.Join(string(p), "goroced.log") }

// ownPlace returns the place of this user: where `goroced serve` has its sockets.
func ownPlace() place {
	return place(filepath.Dir(socket.Default(os.Geteuid(), os.Getenv).Client))
}

// take makes the directory, which then is this user's.
func (p place) take() error {
	err := socket.Take(string(p))
	if err == nil && !socket.IsOwn(string(p)) {
		err = fmt.Errorf("%s is another user's, or others may write to it or to a parent: %w", p, fs.ErrPermission)
	}
	if err != nil {
		return fmt.Errorf("a place for the daemon's sockets: %w; set XDG_RUNTIME_DIR to another", err)
	}
	return nil
}

// lock makes the directory, and lets one process at a time start a daemon there.
func (p place) lock() (unlock func(), err error) {
	if err := p.take(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(string(p), "start.lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(os.NewSyscallError("flock", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// errUnused is the end of a daemon without an error: its idle_exit had passed before this process was its client.
var errUnused = errors.New("it had no client for as long as idle_exit; set GOROCED_IDLE_EXIT to a longer time")

// start starts a daemon and connects to it. On a busy machine the first one may end before that.
func (p place) start(ctx context.Context, say func(string)) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errNoAnswer)
	defer cancel()
	args, err := p.settings(say)
	if err != nil {
		return nil, err
	}
	for {
		conn, err := p.startOne(ctx, args)
		if !errors.Is(err, errUnused) || ctx.Err() != nil {
			return conn, err
		}
	}
}

// startOne starts one daemon. It is no child of this process, which becomes another program that knows nothing of it:
// Spawn starts it, and ends.
func (p place) startOne(ctx context.Context, args []string) (*net.UnixConn, error) {
	if err := p.vacant(ctx); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	alive, theirs, err := os.Pipe() // the daemon has the other end for as long as it runs
	if err != nil {
		return nil, err
	}
	defer alive.Close()
	spawn := exec.CommandContext(ctx, self, append([]string{"spawn", p.log(), "serve"}, args...)...)
	spawn.ExtraFiles = []*os.File{theirs}
	out, err := spawn.CombinedOutput()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start a daemon: %w: %s", err, out)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = alive.Read(make([]byte, 1))
		close(ended)
	}()
	return p.await(ctx, ended)
}

// vacant waits until a daemon that is about to end, and answers no more, has left its sockets.
func (p place) vacant(ctx context.Context) error {
	f, err := os.OpenFile(p.socket()+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("the daemon at %s: %w", p.socket(), context.Cause(ctx))
		}
	}
	return nil
}

// await connects to a daemon that starts.
func (p place) await(ctx context.Context, ended <-chan struct{}) (*net.UnixConn, error) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		conn, err := dial(ctx, []string{p.socket()})
		if err == nil || !absent(err) {
			return conn, err
		}
		select {
		case <-look.C:
		case <-ended:
			return nil, fmt.Errorf("the daemon that was started has ended: %w", reason(p.log()))
		case <-ctx.Done():
			return nil, fmt.Errorf("the daemon that was started: %w; its log is %s", context.Cause(ctx), p.log())
		}
	}
}

// settings returns the flags of the daemon, beside the user's configuration.
func (p place) settings(say func(string)) ([]string, error) {
	flags := []string{"--socket", p.socket(), "--admin", p.admin()}
	for _, f := range []struct{ variable, flag, value string }{
		{"GOROCED_IDLE_EXIT", "--idle-exit", IdleExit.String()},
		{"GOROCED_LOG_LEVEL", "--log-level", "warn"}, // each program that comes would make the log longer
	} {
		if _, set := os.LookupEnv(f.variable); !set {
			flags = append(flags, f.flag, f.value)
		}
	}
	c, err := config.Load(config.Process("", []config.Flag{
		{Name: "--socket", Key: "socket", Value: p.socket()}, {Name: "--admin", Key: "admin", Value: p.admin()}}))
	if err != nil {
		return nil, err
	}
	if !plain(c.Devices) {
		return flags, nil
	}
	list, err := host.Interfaces()
	if err != nil {
		return nil, err
	}
	device, err := deviceFlags(list)
	if slices.Contains(device, "--netif") {
		say("no network interface besides loopback is up: the daemon is started on that, for programs of this machine")
	}
	return append(flags, device...), err
}

// plain reports whether nothing is said of the device.
func plain(list []config.Device) bool {
	d := &list[0]
	return len(list) == 1 && d.Name == "" && d.NetIf == "" && len(d.Addresses) == 0 && d.Shards == 0 && !d.PinPorts &&
		d.Link == "auto"
}

// longestName is how long a device's name may be for UCX, which cuts longer ones and then finds no device
// (UCT_MD_NAME_MAX).
const longestName = 15

// deviceFlags returns the flags of a device of which nothing is said. Without a network programs of this machine can
// still talk to each other, over loopback. With several interfaces of which none is the default route's, which is meant
// is for the user to say.
func deviceFlags(list []host.Interface) ([]string, error) {
	loopback := ""
	var others []string
	for i := range list {
		switch f := &list[i]; {
		case f.Default && len(f.Device()) > longestName:
			return []string{"--set", "device.name=goroce0"}, nil
		case f.Default:
			return nil, nil
		case f.Loopback && f.Up:
			loopback = f.Name
		case f.Up:
			others = append(others, fmt.Sprintf("%s (%v)", f.Name, host.MainAddr(f.Addrs)))
		}
	}
	switch {
	case len(others) > 0:
		return nil, fmt.Errorf("start a daemon: %w: there is no default route, and there are %s; set "+
			"GOROCED_DEVICE_NETIF to one of them, or start `goroced serve --netif IF`", host.ErrNoInterface,
			strings.Join(others, ", "))
	case loopback == "":
		return nil, nil
	}
	return []string{"--netif", loopback}, nil
}

// Spawn starts this program with arguments as a daemon: in a session of its own, with nothing of this one but its
// environment, and the descriptor 3 by which its starter sees it end. Its output goes to a log file, which begins anew.
func Spawn(log string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer out.Close()
	daemon := exec.Command(self, args...)
	daemon.Dir, daemon.Stdout, daemon.Stderr = "/", out, out
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	daemon.ExtraFiles = []*os.File{os.NewFile(3, "alive")}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "LD_PRELOAD", "LD_LIBRARY_PATH", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
			"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES": // of the program's own start
		default:
			daemon.Env = append(daemon.Env, v)
		}
	}
	return daemon.Start()
}

// reason returns why a daemon ended: the last line of its log, or errUnused if that is none or a record of the log. An
// error that ends the daemon is no record.
func reason(log string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	if last == "" || strings.HasPrefix(last, "time=") || strings.HasPrefix(last, "{") {
		return errUnused
	}
	return errors.New(last)
}
