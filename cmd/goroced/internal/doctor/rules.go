package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// suspect is a rule of this machine's firewall that may be in the way of RoCEv2.
type suspect struct {
	text    string // as nft or iptables-save prints it, behind the name of its chain
	command string // lets packets pass
}

// suspects lists the rules that may be in the way. They are not followed through their chains: whether packets pass has
// been found out by sending some.
func (e *env) suspects() []suspect {
	if out, err := e.command("nft", "-a", "list", "ruleset"); err == nil {
		return suspectsOfNft(out)
	}
	var list []suspect
	for _, program := range []string{"iptables", "ip6tables"} {
		if out, err := e.command(program + "-save"); err == nil {
			list = append(list, suspectsOfSave(out, program)...)
		}
	}
	return list
}

var (
	mentionsPort = regexp.MustCompile(`\b4791\b`)
	nftHandle    = regexp.MustCompile(` # handle (\d+)$`)
	dropsAll     = regexp.MustCompile(`hook (input|output|prerouting|postrouting|ingress|egress) .*policy drop;`)
)

// suspectsOfNft reads what `nft -a list ruleset` prints: tables, with chains, with a rule on each line.
func suspectsOfNft(out string) []suspect {
	var list []suspect
	table, chain := "", ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) > 3 && words[0] == "table":
			table = words[1] + " " + words[2]
		case len(words) > 2 && words[0] == "chain":
			chain = words[1]
		case dropsAll.MatchString(line):
			list = append(list, suspect{fmt.Sprintf("chain %s of table %s: %s", chain, table, line),
				fmt.Sprintf("nft insert rule %s %s udp dport 4791 accept", table, chain)})
		case mentionsPort.MatchString(nftHandle.ReplaceAllString(line, "")) && !slices.Contains(words, "accept"):
			if handle := nftHandle.FindStringSubmatch(line); handle != nil {
				rule := strings.TrimSuffix(line, handle[0])
				list = append(list, suspect{fmt.Sprintf("chain %s of table %s: %s", chain, table, rule),
					fmt.Sprintf("nft delete rule %s %s handle %s", table, chain, handle[1])})
			}
		}
	}
	return list
}

// suspectsOfSave reads what iptables-save prints.
func suspectsOfSave(out, program string) []suspect {
	var list []suspect
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && strings.HasPrefix(line, ":") && words[1] == "DROP":
			chain := strings.TrimPrefix(words[0], ":")
			list = append(list, suspect{fmt.Sprintf("%s, chain %s: its policy is DROP", program, chain),
				fmt.Sprintf("%s -I %s -p udp --dport 4791 -j ACCEPT", program, chain)})
		case strings.HasPrefix(line, "-A ") && mentionsPort.MatchString(line) && !slices.Contains(words, "ACCEPT"):
			list = append(list, suspect{program + ": " + line, program + " -D " + strings.TrimPrefix(line, "-A ")})
		}
	}
	return list
}
