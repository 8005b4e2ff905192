package device

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link"
)

// Here is what a client on the same machine needs to reach a device of this program: each address has only one UDP port
// 4791, so that the client must have another address, or use the same daemon.
type Here struct {
	Flags string     // of the client: "--addr 127.0.0.2", "--daemon"
	Addr  netip.Addr // of the device
}

// Client returns ", on this machine `COMMAND`", for the line of a server that waits. format has verbs for the flags and
// the address. It returns "" if the client needs nothing special.
func (h Here) Client(format string) string {
	if h.Flags == "" || !h.Addr.IsValid() {
		return ""
	}
	return ", on this machine `" + fmt.Sprintf(format, h.Flags, h.Addr) + "`"
}

// Waiting returns the line of a server that takes clients in turn. command is that of a client, up to its host;
// standard is the port that it takes without -p.
func (h Here) Waiting(command string, port, standard int) string {
	if port != standard {
		command += fmt.Sprintf(" -p %d", port)
	}
	return fmt.Sprintf("waiting for clients on TCP port %d, in turn: `%s HOST`%s", port, command,
		h.Client(command+" %s %v"))
}

// HereOf returns what a client of a device on this machine needs.
func HereOf(dev ib.Device, flags string) Here {
	gids, err := dev.GIDs(1)
	if err != nil || len(gids) == 0 {
		return Here{}
	}
	addrs := make([]netip.Addr, len(gids))
	for i := range gids {
		addrs[i] = gids[i].GID.Addr()
	}
	return Here{flags, host.MainAddr(addrs)}
}

// FreeLoopback returns a loopback address whose UDP port 4791 nobody has; invalid if there is none among the first.
func FreeLoopback() netip.Addr {
	const tries = 30
	for i := range byte(tries) {
		a := netip.AddrFrom4([4]byte{127, 0, 0, 2 + i})
		if c, err := net.ListenPacket("udp", net.JoinHostPort(a.String(), strconv.Itoa(link.Port))); err == nil {
			_ = c.Close()
			return a
		}
	}
	return netip.Addr{}
}
