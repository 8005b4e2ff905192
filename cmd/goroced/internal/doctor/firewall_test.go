package doctor

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// nftRules is a ruleset as nft prints it, with these rules in a chain of hook input and
// policy drop.
func nftRules(rules string) string {
	return `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "t", "handle": 1}},
		{"chain": {"family": "inet", "table": "t", "name": "c", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}` + rules + `]}`
}

func nftRule(expr string) string {
	return `, {"rule": {"family": "inet", "table": "t", "chain": "c", "handle": 5, "expr": [` + expr + `]}}`
}

// nftMatch is a rule that accepts where a field has a value.
func nftMatch(left, op, right string) string {
	return nftRule(`{"match": {"op": "` + op + `", "left": {` + left + `}, "right": ` + right +
		`}}, {"counter": {"packets": 0, "bytes": 0}}, {"accept": null}`)
}

const (
	nftDport = `"payload": {"protocol": "udp", "field": "dport"}`
	nftSaddr = `"payload": {"protocol": "ip", "field": "saddr"}`
	nftState = `"ct": {"key": "state"}`
	saveDrop = "*filter\n:INPUT DROP [0:0]\n:RDMA - [0:0]\n"
)

// TestRules: what lets a packet through a chain that drops the rest, for sure, perhaps
// or not at all. The packet is to 10.0.0.1 by eth0, from anybody.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		program, rules string
		want           Status // OK: it passes
	}{
		{"nft", nftRules(""), Fail},
		{"nft", nftRules(nftMatch(nftDport, "==", "4791")), OK},
		{"nft", nftRules(nftMatch(nftDport, "==", "4792")), Fail},
		{"nft", nftRules(nftMatch(nftDport, "!=", "4792")), OK},
		{"nft", nftRules(nftMatch(nftDport, "==", `{"range": [4000, 5000]}`)), OK},
		{"nft", nftRules(nftMatch(nftDport, "==", `{"set": [53, {"range": [4790, 4792]}]}`)), OK},
		{"nft", nftRules(nftMatch(nftDport, "==", `"@ports"`)), Warn},
		{"nft", nftRules(nftMatch(nftDport, "<", "5000")), Warn},
		{"nft", nftRules(nftMatch(`"payload": {"protocol": "th", "field": "sport"}`, "==", "4791")), Warn},
		{"nft", nftRules(nftMatch(nftSaddr, "==", `"10.0.0.2"`)), Warn},
		{"nft", nftRules(nftMatch(nftSaddr, "==", `{"prefix": {"addr": "0.0.0.0", "len": 0}}`)), OK},
		{"nft", nftRules(nftMatch(`"payload": {"protocol": "ip", "field": "daddr"}`, "==",
			`{"prefix": {"addr": "10.0.0.0", "len": 8}}`)), OK},
		{"nft", nftRules(nftMatch(`"payload": {"protocol": "ip6", "field": "daddr"}`, "==", `"fd00::1"`)), Fail},
		{"nft", nftRules(nftMatch(`"payload": {"protocol": "tcp", "field": "dport"}`, "==", "4791")), Fail},
		{"nft", nftRules(nftMatch(nftState, "in", `["established", "related"]`)), Fail},
		{"nft", nftRules(nftMatch(nftState, "in", `["established", "new"]`)), OK},
		{"nft", nftRules(nftMatch(`"meta": {"key": "iifname"}`, "==", `"eth*"`)), OK},
		{"nft", nftRules(nftMatch(`"meta": {"key": "iifname"}`, "==", `"lo"`)), Fail},
		{"nft", nftRules(nftMatch(`"meta": {"key": "oifname"}`, "==", `"eth0"`)), Fail}, // it arrives
		{"nft", nftRules(nftMatch(`"meta": {"key": "nfproto"}`, "==", `"ipv4"`)), OK},
		{"nft", nftRules(nftMatch(`"meta": {"key": "skuid"}`, "==", "7")), Warn},
		{"nft", nftRules(nftRule(`{"limit": {"rate": 1, "per": "second"}}, {"accept": null}`)), Warn},
		{"nft", nftRules(nftRule(`{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": "@zones"}}`)), Warn},
		{"nft", nftRules(nftRule(`{"jump": {"target": "c"}}`)), OK}, // a loop ends, and is no proof

		{"iptables-save", saveDrop, Fail},
		{"iptables-save", saveDrop + "-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n", OK},
		{"iptables-save", saveDrop + "-A INPUT -p udp -m multiport --dports 53,4000:5000 -j ACCEPT\n", OK},
		{"iptables-save", saveDrop + "-A INPUT -p udp -m udp ! --dport 53 -j ACCEPT\n", OK},
		{"iptables-save", saveDrop + "-A INPUT -p tcp -j ACCEPT\n-A INPUT -i lo -j ACCEPT\n", Fail},
		{"iptables-save", saveDrop + "-A INPUT -s 10.0.0.0/8 -j ACCEPT\n", Warn},
		{"iptables-save", saveDrop + "-A INPUT -m recent --name x --rcheck -j ACCEPT\n", Warn},
		{"iptables-save", saveDrop + "-A INPUT -j RDMA\n-A RDMA -d 10.0.0.1/32 -j ACCEPT\n", OK},
		{"iptables-save", saveDrop + "-A INPUT -j RDMA\n-A RDMA -j RETURN\n-A RDMA -j ACCEPT\n", Fail},
		{"iptables-save", saveDrop + "-A INPUT -g RDMA\n-A INPUT -j ACCEPT\n-A RDMA -p tcp -j ACCEPT\n", Fail},
		{"iptables-save", saveDrop + "-A INPUT -s 10.0.0.0/8 -j RDMA\n-A RDMA -j ACCEPT\n", Warn},
		{"iptables-save",
			"*filter\n:INPUT ACCEPT [0:0]\n:RDMA - [0:0]\n-A INPUT -s 10.0.0.0/8 -j RDMA\n-A RDMA -p udp -j " +
				"RETURN\n-A RDMA -j DROP\n", OK},
		{"iptables-save",
			"*filter\n:INPUT ACCEPT [0:0]\n:RDMA - [0:0]\n-A INPUT -s 10.0.0.0/8 -j RDMA\n-A RDMA -j DROP\n", Warn},
		{"iptables-save", saveDrop + "-A INPUT -j LOG --log-prefix \"x -j ACCEPT -m y\"\n", Fail},
		{"iptables-save", saveDrop + "-A INPUT -p udp -m comment --comment \"-s me\" -j ACCEPT\n", OK},
		{"iptables-save", saveDrop + "-A INPUT -i eth+ -j ACCEPT\n", OK},
		{"iptables-save", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m limit --limit 1/sec -j DROP\n", Warn},
		{"ip6tables-save", saveDrop, OK}, // there is no IPv6 address
	} {
		e := machine(t, nil)
		e.setCaps(t, netAdmin)
		e.command = func(name string, _ ...string) (string, error) {
			if name != c.program {
				return "", errors.New("not there")
			}
			return c.rules, nil
		}
		found := checkFirewall(e)
		if len(found) != 1 || found[0].Status != c.want {
			t.Errorf("%s: %s\nfound %+v, want %v", c.program, c.rules, found, c.want)
		}
	}
}

// TestRulesOfBoth: nft shows the tables of iptables, but not all of their conditions.
func TestRulesOfBoth(t *testing.T) {
	e := machine(t, nil)
	e.setCaps(t, netAdmin)
	nft := strings.ReplaceAll(nftRules(nftRule(`{"xt": null}, {"accept": null}`)), `"inet", "table": "t"`,
		`"ip", "table": "filter"`)
	out := map[string]string{"nft": nft}
	e.command = func(name string, _ ...string) (string, error) {
		if text, ok := out[name]; ok {
			return text, nil
		}
		return "", errors.New("not there")
	}
	wantFound(t, e.examine(), "firewall", Warn, "may drop")
	out["iptables-save"] = saveDrop + "-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n"
	wantOK(t, e.examine(), "firewall")
	delete(out, "iptables-save")
	out["nft"] = "not JSON"
	wantFound(t, e.examine(), "firewall", Warn, "cannot be looked at")
}

// TestRulesPeer: with a peer, its address is known.
func TestRulesPeer(t *testing.T) {
	e := machine(t, nil)
	e.setCaps(t, netAdmin)
	e.command = func(name string, _ ...string) (string, error) {
		if name != "iptables-save" {
			return "", errors.New("not there")
		}
		return "*filter\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.7/32 -j DROP\n-A OUTPUT -d " +
			"10.0.0.8/32 -j DROP\n", nil
	}
	for peer, want := range map[string]Status{"10.0.0.7": Fail, "10.0.0.8": Fail, "10.0.0.9": OK, "": Warn} {
		e.Peer, _ = netip.ParseAddr(peer)
		if found := checkFirewall(e); found[0].Status != want {
			t.Errorf("peer %q: found %+v, want %v", peer, found, want)
		}
	}
}

// TestRulesJunk: no text takes the parsers down.
func TestRulesJunk(t *testing.T) {
	words := []string{"*filter", ":INPUT DROP", "-A INPUT", " -j", " -g", " !", " -p", " udp", " --dport", " 1:", " \"",
		"\n", " -s", " 1.2.3.4/99", " INPUT", " -i", " +"}
	expr := []string{`{"jump": {"target": "c"}}`, `{"goto": 7}`, `{"match": 5}`, `{"match": {"op": "=="}}`,
		`{"vmap": {"data": {"set": [[1], [1, 2], [{}, {"drop": 0}]]}}}`,
		`{}`,
		`{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "::", "len": -4}}}}`, `{"accept": null}`}
	rapid.Check(t, func(t *rapid.T) {
		set := parseSave(rapid.StringOf(rapid.Rune()).Draw(t, "text"), "ip", "iptables")
		saved := ""
		for _, w := range rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, "words") {
			saved += w
		}
		rules := ""
		for _, x := range rapid.SliceOf(rapid.SampledFrom(expr)).Draw(t, "expr") {
			rules += nftRule(x)
		}
		nft, err := parseNft([]byte(nftRules(rules)))
		if err != nil {
			t.Fatal(err)
		}
		p := &packet{in: true, netif: "eth0", local: netip.MustParseAddr("10.0.0.1")}
		for _, s := range []ruleset{set, parseSave(saved, "ip", "iptables"), nft} {
			for _, c := range s {
				s.judge(c, p)
			}
		}
	})
}
