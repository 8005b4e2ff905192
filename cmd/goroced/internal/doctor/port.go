package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/port"
)

// checkPort checks who has UDP port 4791 at the addresses.
func checkPort(e *env) []Finding {
	if e.netif == nil || len(e.usable) == 0 {
		return nil
	}
	var found []Finding
	seen := map[string]bool{} // a socket at [::] conflicts with all addresses
	for _, a := range e.usable {
		f, taken := e.portAt(a)
		if taken && !seen[f.Remedy+f.Command] {
			seen[f.Remedy+f.Command] = true
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return ok("UDP port 4791 is free")
	}
	return found
}

// portAt finds out who has the port at an address.
func (e *env) portAt(a netip.Addr) (f Finding, taken bool) {
	where := netip.AddrPortFrom(a, link.Port)
	o := e.getOwner(a)
	if o.UID < 0 && !o.Goroce {
		return Finding{}, false
	}
	f = Finding{Status: Fail, Text: fmt.Sprintf("%v is taken by %v", where, o)}
	kill, end := "", "or end it"
	if o.PID != 0 {
		kill, end = fmt.Sprintf("kill %d", o.PID), "or end it:"
	}
	switch {
	case o.Kernel:
		f.Remedy = "use another network namespace, or remove the kernel's device:"
		f.Command = e.deleteRxe()
	case o.Goroce && e.daemonShares(a):
		return Finding{Text: fmt.Sprintf("%v belongs to %v; the daemon shares it (--daemon)", where, o)}, true
	case o.Goroce:
		f.Remedy, f.Command = "use another address, share the daemon (`goroced serve`), "+end, kill
	default:
		f.Remedy, f.Command = "no RoCEv2 is possible beside it; use another address, "+end, kill
	}
	return f, true
}

// deleteRxe returns the command that removes the rdma_rxe devices.
func (e *env) deleteRxe() string {
	// Of all drivers only rdma_rxe and siw have this attribute.
	parents, _ := filepath.Glob(e.path("/sys/class/infiniband/*/parent"))
	var commands []string
	for _, p := range parents {
		commands = append(commands, "rdma link delete "+filepath.Base(filepath.Dir(p)))
	}
	if len(commands) == 0 {
		return "modprobe -r rdma_rxe"
	}
	return strings.Join(commands, "; ")
}

// checkDevice opens a device, unless a known problem prevents it.
func checkDevice(e *env) []Finding {
	if e.netif == nil || len(e.usable) == 0 {
		return nil
	}
	note, err := e.open(e.usable)
	switch {
	case errors.Is(err, port.ErrTaken):
		return nil // see checkPort
	case err != nil:
		return []Finding{{Status: Fail, Text: err.Error(),
			Remedy: "see what else is found here; without a remedy there, report it"}}
	}
	return ok("opens with link " + note)
}
