package doctor

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// nftObject is an element of the output of `nft -j list ruleset` (libnftables-json(5)). Sets, maps and others are
// skipped.
type nftObject struct {
	Chain *struct {
		Family, Table, Name, Hook, Policy string
	}
	Rule *struct {
		Family, Table, Chain string
		Handle               int
		Expr                 []nftExpr
	}
}

var nftVerdicts = map[string]verdict{"accept": accept, "drop": drop, "reject": drop, "return": giveBack, "jump": call,
	"goto": branch}

// nftEffects are statements that do not decide about the packet.
var nftEffects = []string{"counter", "log", "notrack", "mangle", "meta", "ct helper"}

// parseNft parses the chains and rules.
func parseNft(text []byte) (ruleset, error) {
	var doc struct{ Nftables []nftObject }
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("rules of nft: %w", err)
	}
	set := ruleset{}
	for _, o := range doc.Nftables {
		c := o.Chain
		// The other families are about frames, not IP packets.
		if c == nil || !slices.Contains([]string{"ip", "ip6", "inet"}, c.Family) {
			continue
		}
		set.add(&chain{table: c.Family + " " + c.Table, name: c.Name, hook: c.Hook, policy: nftVerdicts[c.Policy],
			insert: fmt.Sprintf("nft insert rule %s %s %s udp dport 4791 accept", c.Family, c.Table, c.Name)})
	}
	for _, o := range doc.Nftables {
		if o.Rule == nil {
			continue
		}
		if c := set[o.Rule.Family+" "+o.Rule.Table+" "+o.Rule.Chain]; c != nil {
			text := fmt.Sprintf("its rule with handle %d (nft -a list chain %s %s)", o.Rule.Handle, c.table, c.name)
			c.rules = append(c.rules, parseNftRule(o.Rule.Expr, text)...)
		}
	}
	return set, nil
}

// nftExpr is an expression: an object with one name and its value.
type nftExpr map[string]json.RawMessage

// verdict returns the verdict of the expression. ok is false if it has none.
func (e nftExpr) verdict() (v verdict, target string, ok bool) {
	for name, value := range e {
		if v, ok = nftVerdicts[name]; ok {
			var to struct{ Target string }
			_ = json.Unmarshal(value, &to) // null, except for jump and goto
			return v, to.Target, true
		}
	}
	return goOn, "", false
}

// parseNftRule parses the expressions of a rule: conditions, then a verdict. A map of verdicts becomes a rule for each
// of its elements.
func parseNftRule(exprs []nftExpr, text string) []rule {
	var conds []func(*packet) tri
	var rules []rule
	for _, expr := range exprs {
		v, target, isVerdict := expr.verdict()
		if isVerdict {
			rules = append(rules, rule{all(conds), v, target, text})
			continue
		}
		for name, value := range expr {
			switch {
			case name == "vmap":
				for _, c := range nftMap(value) {
					c.match, c.text = all(append(slices.Clone(conds), c.match)), text
					rules = append(rules, c)
				}
			case name == "match":
				conds = append(conds, nftCondition(value))
			case !slices.Contains(nftEffects, name):
				conds = append(conds, always(maybe))
			}
		}
	}
	return rules
}

// nftMap parses a map of verdicts: {"key": field, "data": {"set": [[value, verdict], ...]}}. A map with a name is
// defined elsewhere, and is assumed to accept possibly.
func nftMap(text json.RawMessage) []rule {
	var m struct {
		Key  nftField
		Data struct{ Set [][]json.RawMessage }
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return []rule{{match: always(maybe), verdict: accept}}
	}
	is := nftCompare(&m.Key)
	var rules []rule
	for _, pair := range m.Data.Set {
		var value any
		var expr nftExpr
		if len(pair) != 2 || json.Unmarshal(pair[0], &value) != nil || json.Unmarshal(pair[1], &expr) != nil {
			continue
		}
		if v, target, ok := expr.verdict(); ok {
			rules = append(rules, rule{match: func(p *packet) tri { return is(p, value) }, verdict: v, target: target})
		}
	}
	return rules
}

// nftField is the left side of a condition.
type nftField struct {
	Meta    *struct{ Key string }
	Ct      *struct{ Key string }
	Payload *struct{ Protocol, Field string }
}

// nftCondition translates a condition. Unknown conditions yield maybe.
func nftCondition(text json.RawMessage) func(*packet) tri {
	var m struct {
		Op    string
		Left  nftField
		Right any
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return always(maybe)
	}
	is := nftCompare(&m.Left)
	match := func(p *packet) tri {
		best := no
		for _, v := range nftValues(m.Right) {
			if name, ok := v.(string); ok && strings.HasPrefix(name, "@") {
				best = max(best, maybe) // a named set, which is defined elsewhere
				continue
			}
			best = max(best, is(p, v))
		}
		return best
	}
	switch m.Op {
	case "==", "in":
		return match
	case "!=":
		return func(p *packet) tri { return match(p).not() }
	}
	return always(maybe)
}

// nftValues returns the alternatives on the right side of a condition.
func nftValues(right any) []any {
	if list, ok := right.([]any); ok {
		return list
	}
	if m, ok := right.(map[string]any); ok {
		if list, ok := m["set"].([]any); ok {
			return list
		}
	}
	return []any{right}
}

// nftCompare returns the comparison of a field with one value.
func nftCompare(f *nftField) func(*packet, any) tri {
	field := ""
	switch {
	case f.Meta != nil:
		field = "meta " + f.Meta.Key
	case f.Ct != nil:
		field = "ct " + f.Ct.Key
	case f.Payload != nil:
		field = f.Payload.Protocol + " " + f.Payload.Field
	}
	switch field {
	case "meta l4proto", "ip protocol", "ip6 nexthdr":
		return func(_ *packet, v any) tri { return sure(v == "udp" || v == 17.0) }
	case "meta nfproto":
		return func(p *packet, v any) tri { return sure(p.local.Is4() == (v == "ipv4")) }
	case "meta iifname", "meta iif", "meta oifname", "meta oif":
		in := strings.HasPrefix(field, "meta i")
		return func(p *packet, v any) tri { name, _ := v.(string); return p.interfaceIs(in, name) }
	case "meta skuid":
		return nftUser
	case "ct state":
		return func(_ *packet, v any) tri { return sure(v == "new") }
	case "udp dport", "th dport":
		return func(_ *packet, v any) tri { return nftPorts(v, destPort) }
	case "udp sport", "th sport":
		return func(_ *packet, v any) tri { return nftPorts(v, sourcePort) }
	case "ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr":
		source := strings.HasSuffix(field, "saddr")
		return func(p *packet, v any) tri { return nftAddr(p, source, v) }
	}
	if f.Payload != nil && slices.Contains([]string{"tcp", "icmp", "icmpv6", "sctp", "igmp"}, f.Payload.Protocol) {
		return func(*packet, any) tri { return no }
	}
	return func(*packet, any) tri { return maybe }
}

// nftPorts compares a port, or {"range": [from, to]}.
func nftPorts(v any, is func(from, to int) tri) tri {
	if n, ok := v.(float64); ok {
		return is(int(n), int(n))
	}
	if m, ok := v.(map[string]any); ok {
		if r, ok := m["range"].([]any); ok && len(r) == 2 {
			from, ok1 := r[0].(float64)
			to, ok2 := r[1].(float64)
			if ok1 && ok2 {
				return is(int(from), int(to))
			}
		}
	}
	return maybe
}

// nftAddr compares an address, or {"prefix": {"addr": a, "len": n}}.
func nftAddr(p *packet, source bool, v any) tri {
	text, _ := v.(string)
	bits := -1
	if m, ok := v.(map[string]any); ok {
		if prefix, ok := m["prefix"].(map[string]any); ok {
			text, _ = prefix["addr"].(string)
			n, _ := prefix["len"].(float64)
			bits = int(n)
		}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return maybe
	}
	if bits < 0 {
		bits = a.BitLen()
	}
	in := netip.PrefixFrom(a, bits)
	if !in.IsValid() {
		return maybe
	}
	return p.at(source, in)
}
