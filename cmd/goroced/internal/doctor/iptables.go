package doctor

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

func sortedKeys(r ruleset) []string { return slices.Sorted(maps.Keys(r)) }

// iptablesHooks are the names of iptables' base chains.
var iptablesHooks = map[string]string{"PREROUTING": "prerouting", "INPUT": "input", "OUTPUT": "output",
	"POSTROUTING": "postrouting"}

var iptablesVerdicts = map[string]verdict{"ACCEPT": accept, "DROP": drop, "REJECT": drop, "RETURN": giveBack}

// parseSave parses the output of iptables-save(8): for each table "*filter", chains ":INPUT DROP [0:0]" and rules "-A
// INPUT ... -j ACCEPT". Unknown lines are skipped.
func parseSave(text, family, program string) ruleset {
	set := ruleset{}
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			f := strings.Fields(line[1:])
			if len(f) < 2 {
				continue
			}
			set.add(&chain{table: family + " " + table, name: f[0], hook: iptablesHooks[f[0]],
				policy: iptablesVerdicts[f[1]], insert: program + " -t " + table + " -I " + f[0] +
					" -p udp --dport 4791 -j ACCEPT"})
		case strings.HasPrefix(line, "-A "):
			words := splitWords(line)
			if len(words) < 2 {
				continue
			}
			if c := set[family+" "+table+" "+words[1]]; c != nil {
				c.rules = append(c.rules, parseSaveRule(words[2:], line))
			}
		}
	}
	return set
}

// splitWords splits a line at spaces outside double quotes. Quotes are kept, so that quoted text is not taken for an
// option.
func splitWords(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}

// parseSaveRule reads the options of a rule.
func parseSaveRule(words []string, line string) rule {
	r := rule{text: line}
	var conds []func(*packet) tri
	negate := false
	for i := 0; i < len(words); i++ {
		option := words[i]
		// The arguments end at the next option.
		args := words[i+1:]
		if n := slices.IndexFunc(args, func(w string) bool { return strings.HasPrefix(w, "-") || w == "!" }); n >= 0 {
			args = args[:n]
		}
		i += len(args)
		arg := strings.Join(args, " ")
		switch option {
		case "!":
			negate = true
			continue
		case "-j", "-g":
			r.verdict, r.target = saveVerdict(option, arg)
		case "-m", "--comment", "--reject-with":
		default:
			cond := saveCondition(option, arg)
			if negate {
				plain := cond
				cond = func(p *packet) tri { return plain(p).not() }
			}
			conds = append(conds, cond)
		}
		negate = false
	}
	r.match = all(conds)
	return r
}

// saveVerdict translates the target of a rule. A target that is neither known nor a chain (LOG, MARK) does not end the
// chain.
func saveVerdict(option, target string) (verdict, string) {
	if v, ok := iptablesVerdicts[target]; ok {
		return v, ""
	}
	if option == "-g" {
		return branch, target
	}
	return call, target
}

// all is the conjunction of conditions.
func all(conds []func(*packet) tri) func(*packet) tri {
	return func(p *packet) tri {
		least := yes
		for _, c := range conds {
			least = min(least, c(p))
		}
		return least
	}
}

func always(t tri) func(*packet) tri { return func(*packet) tri { return t } }

// saveCondition translates a condition. Unknown conditions yield maybe.
func saveCondition(option, arg string) func(*packet) tri {
	switch option {
	case "-p":
		return always(sure(arg == "udp" || arg == "17" || arg == "all" || arg == "0"))
	case "-s", "-d":
		in, ok := parsePrefix(arg)
		if !ok {
			return always(maybe)
		}
		return func(p *packet) tri { return p.at(option == "-s", in) }
	case "-i", "-o":
		return func(p *packet) tri { return p.interfaceIs(option == "-i", arg) }
	case "--dport", "--dports":
		return always(anyPort(arg, destPort))
	case "--sport", "--sports":
		return always(anyPort(arg, sourcePort))
	case "--uid-owner":
		return func(p *packet) tri { return p.userIs(arg) }
	case "--ctstate", "--state":
		return always(sure(slices.Contains(strings.Split(arg, ","), "NEW")))
	}
	return always(maybe)
}

// parsePrefix reads "10.0.0.0/8" or "10.0.0.1".
func parsePrefix(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen()), err == nil
}

// anyPort compares a port with a list such as "53,4000:5000".
func anyPort(list string, is func(from, to int) tri) tri {
	best := no
	for item := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(item, ":")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil {
			return maybe
		}
		best = max(best, is(from, to))
	}
	return best
}
