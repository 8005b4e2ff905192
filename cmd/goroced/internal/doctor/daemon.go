package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
)

// errSilent is the cause that ends the wait for a daemon.
var errSilent = errors.New("it hangs, or is stopped")

// sockets returns the paths where programs look for a daemon.
func (e *env) sockets(k socket.Kind) []string {
	list := socket.Candidates(k, "", e.getenv)
	for i := range list {
		list[i] = e.path(list[i])
	}
	return list
}

// daemonShares reports whether a running daemon has an address.
func (e *env) daemonShares(a netip.Addr) bool {
	return slices.ContainsFunc(e.sockets(socket.Client), func(path string) bool {
		_, addrs, err := e.ask(path)
		return err == nil && slices.Contains(addrs, a.WithZone("")) // GIDs have no zone
	})
}

// ask connects to the daemon at a client socket, as programs do. It returns a description of the daemon's devices, and
// their addresses.
func (e *env) ask(path string) (text string, addrs []netip.Addr, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), e.patience, errSilent)
	defer cancel()
	g, err := greet(ctx, path)
	if err != nil {
		return "", nil, err
	}
	texts := make([]string, len(g.Devices))
	for i, name := range g.Devices {
		of, err := addressesOf(ctx, path, name)
		if err != nil {
			return "", nil, err
		}
		texts[i] = fmt.Sprintf("%s %v", name, of)
		addrs = append(addrs, of...)
	}
	return fmt.Sprintf("protocol version %d, devices %s", g.Version, strings.Join(texts, ", ")), addrs, nil
}

// greet asks the daemon at a client socket for its version and devices.
func greet(ctx context.Context, path string) (socket.Greeting, error) {
	conn, err := socket.DialAny(ctx, socket.Client, []string{path})
	if err != nil {
		return socket.Greeting{}, err
	}
	defer conn.Close()
	return socket.Greet(ctx, conn)
}

// addressesOf opens a device of the daemon for a moment and returns its addresses.
func addressesOf(ctx context.Context, path, name string) (addrs []netip.Addr, err error) {
	dev, err := client.Dial(ctx, client.Options{Socket: path, Device: name})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	table, err := dev.GIDs(1)
	for _, entry := range table {
		addrs = append(addrs, entry.GID.Addr())
	}
	return addrs, err
}

// look asks a daemon for its state by its admin socket.
func (e *env) look(path string) (text string, devices []admin.Device, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), e.patience, errSilent)
	defer cancel()
	status, err := admin.NewClient(path).Status(ctx)
	if err != nil {
		return "", nil, errors.Join(err, context.Cause(ctx))
	}
	return fmt.Sprintf("goroced %s, process %d, clients: %d", status.VersionText(), status.PID, status.Clients),
		status.Devices, nil
}

// troubles finds what disturbs packets of a daemon's devices, or has lost some on this host.
func troubles(path string, devices []admin.Device) (found []Finding) {
	faults := 0
	for i := range devices {
		d := &devices[i]
		faults += d.Faults
		if d.RxOverflow > 0 {
			found = append(found, Finding{Status: Warn,
				Text: fmt.Sprintf("%s of the daemon at %s: the kernel dropped %d packets for which the receive "+
					"buffer had no room", d.Name, path, d.RxOverflow),
				Remedy: "if \"receive buffers hold\" is a warning, raise net.core.rmem_max and restart, else give " +
					"the device more shards; whether it goes on:",
				Command: "goroced stat --watch --admin " + path})
		}
		if d.SendErr > 0 {
			found = append(found, Finding{Status: Warn,
				Text: fmt.Sprintf("%s of the daemon at %s: the kernel refused to send %d packets", d.Name, path,
					d.SendErr),
				Remedy:  "look for rules of a firewall, and for a full queue of the interface (dropped):",
				Command: "ip -s link show dev " + d.NetIf})
		}
	}
	if faults > 0 {
		found = append(found, Finding{Status: Warn,
			Text:    fmt.Sprintf("the daemon at %s disturbs packets: %d faults were added", path, faults),
			Remedy:  "see them, and remove them by `goroced fault clear`:",
			Command: "goroced fault list --admin " + path})
	}
	return found
}

// checkDaemon connects to the daemons that programs would find. A daemon is optional: programs can open devices
// themselves.
func checkDaemon(e *env) []Finding {
	found := checkRuntime(e)
	for _, path := range e.sockets(socket.Client) {
		text, _, err := e.ask(path)
		found = append(found, e.judge(path, text, err, socket.ClientVariable)...)
	}
	for _, a := range socket.Foreign(socket.Client, "", e.getenv) {
		found = append(found, Finding{Status: Warn, Text: fmt.Sprintf("%s is not for programs here: %v", a.Path, a.Err),
			Remedy: "run this in that namespace, or start a daemon in this one:", Command: "goroced serve"})
	}
	if len(found) == 0 {
		found = ok("none is running; programs open devices of their own (`goroced serve` starts one)")
	}
	for _, path := range e.sockets(socket.Admin) {
		text, devices, err := e.look(path)
		found = append(found, troubles(path, devices)...)
		for _, f := range e.judge(path, text, err, socket.AdminVariable) {
			f.Status = min(f.Status, Warn) // programs work without a daemon
			found = append(found, f)
		}
	}
	return found
}

// checkRuntime says why programs do not look for a daemon in the runtime directory, if there is one.
func checkRuntime(e *env) []Finding {
	_, err := socket.Runtime(os.Geteuid(), e.getenv)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return []Finding{{Status: Warn, Text: err.Error(),
		Remedy:  "become this user by `su -` or `sudo -i`, which set it, or go without it:",
		Command: "unset XDG_RUNTIME_DIR"}}
}

// refusals are the reasons why a socket cannot be used. The first one that matches is reported.
var refusals = []struct {
	is     error
	text   string // precedes the error, or replaces it
	remedy string
}{
	{unix.EAGAIN, "no answer, and its queue is full",
		"restart the daemon; SIGQUIT makes it log where it hangs"},
	{errSilent, "no answer", "restart the daemon; SIGQUIT makes it log where it hangs"},
	{abi.ErrVersion, "", "install the same goroced for the daemon and here"},
	{ib.ErrLimit, "",
		"end programs that use the daemon, or raise the limit and reload the daemon (SIGHUP)"},
	{abi.ErrPermission, "", "ask whoever runs the daemon"},
}

// judge returns the finding for an answer, or for the lack of one. A socket that an environment variable names must
// exist.
func (e *env) judge(path, text string, err error, variable string) []Finding {
	f := Finding{Status: Fail}
	switch {
	case err == nil:
		f = Finding{Text: "a daemon answers at " + path + ": " + text}
	case errors.Is(err, fs.ErrNotExist) && e.getenv(variable) == "":
		return nil
	case errors.Is(err, fs.ErrNotExist):
		f.Text, f.Remedy, f.Command = fmt.Sprintf("%s names %s, which is not there", variable, path),
			"unset it, or start a daemon there (`goroced serve`):", "unset "+variable
	case errors.Is(err, fs.ErrPermission):
		f.Text, f.Remedy = "no right to connect to "+path, permission(path)
	case errors.Is(err, unix.ECONNREFUSED):
		f = Finding{Status: Warn, Text: "nobody answers at " + path + ": its daemon has ended",
			Remedy: "start another (`goroced serve`), or remove what is left of it:", Command: "rm " + path}
	case errors.Is(err, unix.EPROTOTYPE):
		f.Text, f.Remedy, f.Command = path+" is no socket of goroced", "move it out of the way:",
			fmt.Sprintf("mv %s %s.old", path, path)
	default:
		f.Text, f.Remedy = fmt.Sprintf("%s: %v", path, err), "see what listens there: ss -xlp"
		for _, r := range refusals {
			if errors.Is(err, r.is) {
				f.Remedy = r.remedy
				if r.text != "" {
					f.Text = path + ": " + r.text
				}
				break
			}
		}
	}
	return []Finding{f}
}

// permission says how to get the right to connect to a socket.
func permission(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return "ask whoever runs the daemon for access to " + filepath.Dir(name)
	}
	stat := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	if mode&0o020 == 0 || stat.Gid == 0 {
		return fmt.Sprintf("it is for user %d alone, or root's group (mode %v); the daemon's socket_mode and "+
			"socket_group say for whom it is", stat.Uid, mode)
	}
	group := strconv.Itoa(int(stat.Gid))
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return fmt.Sprintf("join its group (usermod -aG %s USER) and log in again; mode is %v", group, mode)
}
