package port

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/goroce/roce/link"
)

// Owner describes who has a port, as far as it could be found out.
type Owner struct {
	PID    int    // 0 if no process was found
	Name   string // the process's command name
	UID    int    // of the socket; -1 if no socket was found
	Goroce bool   // it is a goroce process, as it says: see Announce
	Kernel bool   // no process was found, and rdma_rxe, which is loaded, has such a socket
}

func (o Owner) String() string {
	program := "a process"
	if o.Goroce {
		program = "goroce in a process"
	}
	switch {
	case o.PID != 0 && o.Goroce:
		return fmt.Sprintf("goroce in process %d (%s)", o.PID, o.Name)
	case o.PID != 0:
		return fmt.Sprintf("process %d (%s)", o.PID, o.Name)
	case o.Kernel:
		return "the kernel, most likely rdma_rxe (`rdma link` lists its devices)"
	case o.UID >= 0:
		return fmt.Sprintf("%s of user %d that cannot be seen from here", program, o.UID)
	}
	return program + " that cannot be seen from here"
}

// FindOwner looks for the socket that has UDP port 4791 at addr, or at all
// addresses, and for the process that holds it. It needs no privilege, but
// without any it sees only the caller's own processes.
func FindOwner(addr netip.Addr) Owner {
	owner := Owner{UID: -1}
	wildcard := false
	for _, table := range []string{"udp", "udp6"} {
		eachLine(table, func(line string) {
			s, ok := parseSocket(line)
			if !ok || !s.covers(addr) || owner.PID != 0 {
				return
			}
			owner.UID = s.uid
			owner.PID, owner.Name = holder(s.inode)
			wildcard = s.local.Addr().IsUnspecified()
		})
	}
	owner.Goroce = owner.UID >= 0 && owner.announced(addr)
	if owner.likeRxe(wildcard) {
		_, err := os.Stat("/sys/module/rdma_rxe")
		owner.Kernel = err == nil
	}
	return owner
}

// likeRxe reports whether a socket could be rdma_rxe's, which is bound to all addresses (rxe_net.c). The socket of a
// root process that the caller cannot see looks alike.
func (o Owner) likeRxe(wildcard bool) bool {
	return o.PID == 0 && o.UID == 0 && wildcard && !o.Goroce
}

// announced reports whether there is a notice of the owner's. Of a process that cannot be seen
// any notice counts.
func (o Owner) announced(addr netip.Addr) (found bool) {
	name := " " + noticeName(addr)
	eachLine("unix", func(line string) {
		if f := strings.Fields(line); strings.HasSuffix(line, name) && len(f) > 7 {
			found = found || o.PID == 0 || holds(o.PID, f[6])
		}
	})
	return found
}

// eachLine calls do for each line of a table of this thread's network namespace, which may differ from that of the
// process.
func eachLine(table string, do func(line string)) {
	f, err := os.Open("/proc/thread-self/net/" + table)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		do(lines.Text())
	}
}

// socket is a line of /proc/net/udp or udp6.
type socket struct {
	local netip.AddrPort
	uid   int
	inode string
}

// covers reports whether s conflicts with a bind to port 4791 at addr.
func (s socket) covers(addr netip.Addr) bool {
	a := s.local.Addr()
	return s.local.Port() == link.Port && (a == addr.WithZone("") || a.IsUnspecified() && (a.Is6() || addr.Is4()))
}

// parseSocket reads a line such as
//
//	12: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000  0 31337 2 ...
//
// Addresses are printed as 32-bit words in host byte order, which is little endian on the machines that goroce
// supports.
func parseSocket(line string) (socket, bool) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return socket{}, false
	}
	host, port, _ := strings.Cut(f[1], ":")
	words, err := hex.DecodeString(host)
	if err != nil || len(words)%4 != 0 {
		return socket{}, false
	}
	for i := 0; i < len(words); i += 4 {
		words[i], words[i+1], words[i+2], words[i+3] = words[i+3], words[i+2], words[i+1], words[i]
	}
	addr, ok := netip.AddrFromSlice(words)
	portNum, err1 := strconv.ParseUint(port, 16, 16)
	uid, err2 := strconv.Atoi(f[7])
	if !ok || err1 != nil || err2 != nil {
		return socket{}, false
	}
	return socket{netip.AddrPortFrom(addr.Unmap(), uint16(portNum)), uid, f[9]}, true
}

// holds reports whether a process has the socket with this inode open.
func holds(pid int, inode string) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(fds, func(fd string) bool { return isSocket(fd, inode) })
}

func isSocket(fd, inode string) bool {
	target, err := os.Readlink(fd)
	return err == nil && target == "socket:["+inode+"]"
}

// holder returns the process that has the socket with this inode open.
func holder(inode string) (pid int, name string) {
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if !isSocket(fd, inode) {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		comm, _ := os.ReadFile(dir + "/comm")
		pid, _ = strconv.Atoi(filepath.Base(dir))
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}
