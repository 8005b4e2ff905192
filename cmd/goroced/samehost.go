//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/link/port"
)

// here returns what a client on this machine needs to reach the device of these flags.
func (f *deviceFlags) here(dev ib.Device) device.Here {
	_, daemons := dev.(*client.Device)
	switch free := device.FreeLoopback(); {
	case f.Socket != "":
		return device.HereOf(dev, "--socket "+f.Socket)
	case daemons:
		return device.HereOf(dev, "--daemon")
	case strings.HasPrefix(f.Device, "rnic:") || !free.IsValid():
		return device.Here{}
	default:
		return device.HereOf(dev, "--addr "+free.String())
	}
}

// bothEnds returns the options of a command line that the other end needs, too, as it takes them, whichever tool it is:
// those with the tag "both". They have the same short names in perftest and in rdma-core's pingpongs.
func bothEnds(parsed *kong.Context) string {
	var b strings.Builder
	for _, f := range parsed.Flags() {
		if !f.Tag.Has("both") || !f.Set {
			continue
		}
		v := reflect.Indirect(f.Target)
		if v.Kind() != reflect.Bool {
			fmt.Fprintf(&b, " -%c %v", f.Short, v)
		} else if v.Bool() {
			fmt.Fprintf(&b, " -%c", f.Short)
		}
	}
	return b.String()
}

// portTaken adds the command that works to the error of a program that finds UDP port 4791 taken at its address. local
// is the address that the command line names, if it is an argument of another flag than --addr. Other errors stay as
// they are.
func portTaken(err error, local string, args []string) error {
	var taken *port.Error
	if !errors.As(err, &taken) || errors.Is(err, fs.ErrPermission) { // it is known whose it is, and what to do
		return err
	}
	if ownedByDaemon(taken) {
		return fmt.Errorf("%w; here: `%s --daemon`", err, command(args, local, netip.Addr{}))
	}
	if free := device.FreeLoopback(); free.IsValid() && taken.Addr.Is4() {
		return fmt.Errorf("%w; here: `%s`", err, command(args, local, free))
	}
	return fmt.Errorf("%w; here: `goroced serve`, and then `%s --daemon`", err, command(args, local, netip.Addr{}))
}

// ownedByDaemon reports whether the daemon that clients of this user find has the port.
func ownedByDaemon(taken *port.Error) bool {
	conn, err := socket.Dial(socket.Client, "")
	if err != nil {
		return false
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	owned := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		owned = err == nil && int(cred.Pid) == taken.Owner.PID
	})
	return owned
}

// command returns the command line with another local address: in place of local, or by --addr. An invalid address
// leaves out the local one.
func command(args []string, local string, free netip.Addr) string {
	words := []string{"goroced"}
	named := false
	for i := 1; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		switch {
		case flag == "--own" && !free.IsValid():
		case flag == "--addr" || flag == "--netif":
			if !joined {
				i++
			}
		case joined && local != "" && value == local:
			if free.IsValid() {
				words, named = append(words, flag+"="+free.String()), true
			}
		case local != "" && args[i] == local && free.IsValid():
			words, named = append(words, free.String()), true
		case local != "" && args[i] == local && strings.HasPrefix(words[len(words)-1], "-"):
			words = words[:len(words)-1]
		default:
			words = append(words, quoteWord(args[i]))
		}
	}
	if free.IsValid() && !named {
		words = append(words, "--addr", free.String())
	}
	return strings.Join(words, " ")
}

// quoteWord quotes a word of a command line if a shell would not leave it as it is.
func quoteWord(s string) string {
	const plain = "-_./:=,@%+"
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(plain, r))
	}) {
		return s
	}
	return quoteShell(s)
}
