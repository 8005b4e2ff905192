package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/internal/socket"
)

// packagedRule is the file of packages with a rule that keeps users from the port.
const packagedRule = "/usr/share/doc/goroced/examples/goroce.nft"

// stranger is a user whom rules do not name.
const stranger = 1<<32 - 2

// checkSenders finds out, with a packet, whether any user of this machine may send RoCEv2 to it. Nothing in a packet
// tells which user has sent it, so any user who may send can forge a peer's packets, once they know or guess the
// numbers of a connection. It is a problem where users share the daemon.
func checkSenders(e *env) []Finding {
	if e.netif == nil || len(e.usable) == 0 || !e.netif.up {
		return nil
	}
	if !e.has(setUID) {
		return ok("who may send to UDP port 4791 cannot be seen without CAP_SETUID")
	}
	if !e.strangersSend() {
		return ok("only some users of this machine may send to UDP port 4791")
	}
	const text = "any user of this machine may send to UDP port 4791, and so try to speak as any peer"
	uid, daemon := e.daemonUser()
	if !daemon {
		return ok(text + "; that matters where users share a daemon")
	}
	return []Finding{{Status: Warn, Text: text,
		Remedy:  "let only root and the daemon's user send (" + e.ruleFile() + "):",
		Command: onlySender(uid)}}
}

// strangersSend reports whether a packet of a user whom rules do not name leaves for any of the addresses.
func (e *env) strangersSend() bool {
	for _, a := range e.usable {
		if !errors.Is(e.sendAs(stranger, a), unix.EPERM) {
			return true
		}
	}
	return false
}

// sendAs sends a packet that RoCEv2 devices drop from a user's socket to the port of an own address.
func sendAs(uid int, to netip.Addr) (err error) {
	runtime.LockOSThread() // the user is this thread's
	own, err := unix.SetfsuidRetUid(uid)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = sendZeros(to, to)
	if _, back := unix.SetfsuidRetUid(own); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// ruleFile returns the file with the rule: that of a package, or of the repository.
func (e *env) ruleFile() string {
	if _, err := os.Stat(e.path(packagedRule)); err != nil {
		return "dist/nftables/goroce.nft"
	}
	return packagedRule
}

// onlySender returns the commands that keep all users but root and one from the port. Their quotes are double: in
// single ones a long command could not be continued on another line.
func onlySender(uid uint32) string {
	rule := "nft add rule inet goroce output udp dport 4791 meta skuid != 0 counter drop"
	if uid != 0 {
		rule = fmt.Sprintf(`nft "add rule inet goroce output udp dport 4791 meta skuid != { 0, %d } counter drop"`, uid)
	}
	return strings.Join([]string{
		"nft add table inet goroce",
		`nft "add chain inet goroce output { type filter hook output priority filter; }"`,
		rule,
	}, "\n")
}

// daemonUser returns the user of the daemon that all users share, if there is one.
func (e *env) daemonUser() (uid uint32, found bool) {
	info, err := os.Stat(e.path(socket.Default(0, e.getenv).Client))
	if err != nil {
		return 0, false
	}
	return info.Sys().(*syscall.Stat_t).Uid, true
}
