package doctor

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/goroce/goroce/internal/socket"
)

// packagedRule is the file of packages with a rule that keeps users from the port.
const packagedRule = "/usr/share/doc/goroced/examples/goroce.nft"

// stranger is a user whom rules do not name.
const stranger = 1<<32 - 2

// checkSenders looks whether any user of this machine may send RoCEv2. Nothing in a packet tells which user has sent
// it, so any user who may send can forge a peer's packets, once they know or guess the numbers of a connection. It is
// a problem where users share the daemon.
func checkSenders(e *env) []Finding {
	if e.netif == nil || len(e.usable) == 0 {
		return nil
	}
	if !e.has(netAdmin) {
		return ok("who may send to UDP port 4791 cannot be seen without CAP_NET_ADMIN")
	}
	sets, sources := e.rulesets()
	if len(sources) == 0 {
		return ok("who may send to UDP port 4791 cannot be seen: neither nft nor iptables-save is there")
	}
	if e.maySend(sets, stranger) == no {
		return ok("only some users of this machine may send to UDP port 4791 (" + strings.Join(sources, ", ") + ")")
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

// maySend says whether a user's packets leave, by the interface and to this host itself.
func (e *env) maySend(sets []ruleset, uid uint32) tri {
	least := no
	for _, a := range e.usable {
		for _, netif := range []string{e.netif.name, "lo"} {
			least = max(least, leaves(sets, &packet{netif: netif, local: a, uid: uid}))
		}
	}
	return least
}

// leaves says whether a packet passes all chains.
func leaves(sets []ruleset, p *packet) tri {
	passes := yes
	for _, set := range sets {
		for _, c := range set {
			if slices.Contains(hooks[false], c.hook) && c.sees(p.local) {
				drops, _ := set.judge(c, p)
				passes = min(passes, drops.not())
			}
		}
	}
	return passes
}

// daemonUser returns the user of the daemon that all users share, if there is one.
func (e *env) daemonUser() (uid uint32, found bool) {
	info, err := os.Stat(e.path(socket.Default(0, e.getenv).Client))
	if err != nil {
		return 0, false
	}
	return info.Sys().(*syscall.Stat_t).Uid, true
}

// sender is the user whose packets must leave: the daemon's, or the own one.
func (e *env) sender() uint32 {
	if uid, found := e.daemonUser(); found {
		return uid
	}
	return uint32(os.Geteuid())
}

// userIs compares the user whose socket has sent the packet with one of a rule, by name or
// number, or a range "1000-1999".
func (p *packet) userIs(text string) tri {
	if p.in {
		return maybe
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if err1 == nil && err2 == nil {
		return sure(uint32(first) <= p.uid && p.uid <= uint32(last))
	}
	u, err := user.Lookup(text)
	if err != nil {
		return maybe
	}
	return sure(u.Uid == strconv.FormatUint(uint64(p.uid), 10))
}

// nftUser compares a user: a number, a name, or {"range": [from, to]}.
func nftUser(p *packet, v any) tri {
	switch v := v.(type) {
	case float64:
		return p.userIs(strconv.FormatFloat(v, 'f', -1, 64))
	case string:
		return p.userIs(v)
	case map[string]any:
		if r, ok := v["range"].([]any); ok && len(r) == 2 {
			from, isFrom := r[0].(float64)
			to, isTo := r[1].(float64)
			if isFrom && isTo {
				return p.userIs(fmt.Sprintf("%.0f-%.0f", from, to))
			}
		}
	}
	return maybe
}
