package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goroce/goroce/roce/link"
)

// tri is the result of a condition on a packet whose fields are not all known.
type tri int8

const (
	no tri = iota
	maybe
	yes
)

func sure(b bool) tri {
	if b {
		return yes
	}
	return no
}

func (t tri) not() tri { return yes - t }

// packet is the first RoCEv2 packet of a new connection, between a local address and the peer, or any host if there is
// no peer.
type packet struct {
	in    bool // it is received, not sent
	netif string
	local netip.Addr
	peer  netip.Addr // invalid if not known
	uid   uint32     // of the socket that sends it
}

// at compares the packet's source or destination with a prefix.
func (p *packet) at(source bool, in netip.Prefix) tri {
	a := p.local
	if source == p.in {
		a = p.peer
	}
	switch {
	case in.Addr().Is4() != p.local.Is4():
		return no
	case in.Bits() == 0:
		return yes
	case !a.IsValid():
		return maybe
	}
	return sure(in.Masked().Contains(a.WithZone("")))
}

// interfaceIs compares the interface that receives the packet (in) or sends it. A name that ends in + or * stands for
// all names that begin like it.
func (p *packet) interfaceIs(in bool, name string) tri {
	if in != p.in {
		return sure(name == "+" || name == "*" || name == "")
	}
	if prefix := strings.TrimRight(name, "+*"); prefix != name {
		return sure(strings.HasPrefix(p.netif, prefix))
	}
	return sure(name == p.netif)
}

// sourcePort compares the source port, which the sender may choose freely; destPort the destination port.
func sourcePort(from, to int) tri {
	if from == 0 && to == 65535 {
		return yes
	}
	return maybe
}

func destPort(from, to int) tri { return sure(from <= link.Port && link.Port <= to) }

// verdict is what a rule does with a packet that meets its conditions.
type verdict uint8

const (
	goOn verdict = iota
	accept
	drop
	giveBack // return to the calling chain
	call     // call another chain
	branch   // go to another chain, and return where this one would
)

// rule is a rule of a firewall.
type rule struct {
	match   func(*packet) tri
	verdict verdict
	target  string // chain to call
	text    string // for people
}

// chain is a list of rules.
type chain struct {
	table  string // with the address family: "ip filter"
	name   string
	hook   string // "input" and so on; "" if it is only called by other chains
	policy verdict
	rules  []rule
	// insert is the command that inserts a rule which accepts UDP 4791 before all others.
	insert string
}

// ruleset has all chains of one IP version, or of both, by table and name.
type ruleset map[string]*chain

// sees reports whether packets of the IP version of a pass the chain.
func (c *chain) sees(a netip.Addr) bool {
	family, _, _ := strings.Cut(c.table, " ")
	return family == "inet" || (family == "ip") == a.Is4()
}

func (r ruleset) add(c *chain) { r[c.table+" "+c.name] = c }

// walk follows a packet through one base chain.
type walk struct {
	rules   ruleset
	packet  *packet
	escaped bool   // a rule may have accepted it
	doubt   string // the first rule that may drop it; "" if there is none
	steps   int    // rules seen; a ruleset that changes while it is read could have loops
}

// maxSteps limits a walk.
const maxSteps = 100_000

// through returns the verdict of c on a packet that certainly comes to it, and the rule that decides.
func (w *walk) through(c *chain) (verdict, string) {
	for i := range c.rules {
		r := &c.rules[i]
		if w.steps++; w.steps > maxSteps {
			return accept, ""
		}
		m := r.match(w.packet)
		if m == no {
			continue
		}
		v, by := r.verdict, r.text
		if v == call || v == branch {
			sub := w.rules[c.table+" "+r.target]
			if sub == nil {
				continue
			}
			v, by = w.through(sub)
			if v == goOn && r.verdict == branch && m == yes {
				return goOn, ""
			}
		}
		switch {
		case v == giveBack && m == yes:
			return goOn, ""
		case (v == accept || v == drop) && m == yes:
			return v, by
		case v == accept || v == giveBack:
			w.escaped = true
		case v == drop && w.doubt == "":
			w.doubt = by
		}
	}
	return goOn, ""
}

// judge returns whether a base chain drops the packet, and by which rule.
func (r ruleset) judge(c *chain, p *packet) (drops tri, by string) {
	w := walk{rules: r, packet: p}
	v, by := w.through(c)
	if v == goOn {
		v, by = c.policy, "its policy"
	}
	switch {
	case v == drop && !w.escaped:
		return yes, by
	case v == drop:
		return maybe, by
	case w.doubt != "":
		return maybe, w.doubt
	}
	return no, ""
}

// hooks are the places that a received (true) or a sent packet passes.
var hooks = map[bool][]string{
	true:  {"prerouting", "input"},
	false: {"output", "postrouting"},
}

// checkFirewall looks for rules that drop UDP 4791. For packets from a known peer, a probe is more reliable than the
// rules, but it does not tell which rule drops the packet.
func checkFirewall(e *env) []Finding {
	if e.netif == nil || len(e.usable) == 0 {
		return nil
	}
	if !e.has(netAdmin) {
		return []Finding{{Status: Warn, Text: "the firewall's rules cannot be looked at without CAP_NET_ADMIN",
			Remedy:  "UDP port 4791 must be open both ways; to look:",
			Command: fmt.Sprintf("sudo %s doctor --netif %s", e.program, e.netif.name)}}
	}
	sets, sources := e.rulesets()
	if len(sources) == 0 {
		return []Finding{{Status: Warn,
			Text:   "the firewall's rules cannot be looked at: neither nft nor iptables-save is there",
			Remedy: "install nftables, and look again; UDP port 4791 must be open both ways"}}
	}
	arrives, asked := e.peerArrives()
	var found []Finding
	suspects := false // there are rules for received packets
	for _, set := range sets {
		for _, key := range sortedKeys(set) {
			f, bad := e.judgeChain(set, set[key])
			arriving := slices.Contains(hooks[true], set[key].hook)
			if !bad || asked && arriving && arrives {
				continue
			}
			if asked && arriving {
				f.Status, suspects = Fail, true
			}
			found = append(found, f)
		}
	}
	switch {
	case asked && !arrives && !suspects:
		return append(found, Finding{Status: Fail,
			Text: fmt.Sprintf("a packet from %v does not reach UDP port 4791, though no rule drops it (%s)", e.Peer,
				strings.Join(sources, ", ")),
			Remedy: "look at the findings about route and rp_filter, and for filters of the interface and of eBPF:",
			Command: "nft list tables netdev; bpftool net; bpftool cgroup tree; " +
				"tc filter show ingress dev " + e.netif.name})
	case len(found) > 0:
		return found
	case asked:
		return ok(fmt.Sprintf("packets from %v reach UDP port 4791; no rule drops what leaves (%s)", e.Peer,
			strings.Join(sources, ", ")))
	}
	return ok("no rule drops UDP port 4791 (" + strings.Join(sources, ", ") + ")")
}

// judgeChain evaluates a base chain for a packet of each kind, until one is dropped.
func (e *env) judgeChain(set ruleset, c *chain) (Finding, bool) {
	var worst Finding
	for _, in := range []bool{true, false} {
		if !slices.Contains(hooks[in], c.hook) {
			continue
		}
		for _, a := range e.usable {
			if !c.sees(a) {
				continue
			}
			p := &packet{in: in, netif: e.netif.name, local: a, uid: e.sender()}
			if e.Peer.IsValid() && e.Peer.Is4() == a.Is4() {
				p.peer = e.Peer
			}
			drops, by := set.judge(c, p)
			where := fmt.Sprintf("chain %s of table %s", c.name, c.table)
			switch {
			case drops == yes:
				return Finding{Status: Fail, Text: fmt.Sprintf("%s drops UDP port 4791 at %v: %s", where, a, by),
					Remedy: "let it pass:", Command: c.insert}, true
			case drops == maybe && worst.Text == "":
				worst = Finding{Status: Warn, Text: fmt.Sprintf("%s may drop UDP port 4791 at %v: %s", where, a, by),
					Remedy: "if peers do not answer, let it pass:", Command: c.insert}
			}
		}
	}
	return worst, worst.Text != ""
}

// rulesets reads all rules that can be read. sources are the programs that were used.
func (e *env) rulesets() (sets []ruleset, sources []string) {
	saved := map[string]bool{} // tables that iptables-save shows; nft shows them incompletely
	for _, p := range []struct{ save, family, program string }{
		{"iptables-save", "ip", "iptables"}, {"ip6tables-save", "ip6", "ip6tables"},
		{"iptables-legacy-save", "ip", "iptables-legacy"}, {"ip6tables-legacy-save", "ip6", "ip6tables-legacy"},
	} {
		out, err := e.command(p.save)
		if err != nil {
			continue
		}
		sources = append(sources, p.save)
		set := parseSave(out, p.family, p.program)
		for _, c := range set {
			saved[c.table] = true
		}
		sets = append(sets, set)
	}
	out, err := e.command("nft", "-j", "list", "ruleset")
	if err != nil {
		return sets, sources
	}
	set, err := parseNft([]byte(out))
	if err != nil {
		return sets, sources
	}
	for key, c := range set {
		if saved[c.table] {
			delete(set, key)
		}
	}
	return append(sets, set), append(sources, "nft")
}
