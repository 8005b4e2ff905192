package doctor

import (
	"errors"
	"slices"
	"testing"
)

// TestSuspects: of the rules that nft or iptables-save prints those are listed that name the port and do not accept,
// and the chains whose policy drops, each with what lets packets pass.
func TestSuspects(t *testing.T) {
	const nft = `table inet t { # handle 7
	set s { # handle 2
		type inet_service
	}
	chain c { # handle 1
		type filter hook input priority filter; policy drop;
		ct state established accept # handle 4791
		udp dport 4791 accept # handle 5
		udp dport { 53, 4791 } counter packets 0 bytes 0 drop # handle 6
		udp dport 47910 drop # handle 8
	}
}
table ip u { # handle 9
	chain d { # handle 1
		type filter hook output priority filter; policy accept;
		udp dport 4791 reject # handle 3
	}
}
`
	const save = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j DROP\n" +
		"-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\nCOMMIT\n"
	for _, c := range []struct {
		out  map[string]string
		want []suspect
	}{
		{map[string]string{"nft": nft, "iptables-save": save}, []suspect{
			{"chain c of table inet t: type filter hook input priority filter; policy drop;",
				"nft insert rule inet t c udp dport 4791 accept"},
			{"chain c of table inet t: udp dport { 53, 4791 } counter packets 0 bytes 0 drop",
				"nft delete rule inet t c handle 6"},
			{"chain d of table ip u: udp dport 4791 reject", "nft delete rule ip u d handle 3"},
		}},
		{map[string]string{"iptables-save": save}, []suspect{
			{"iptables, chain INPUT: its policy is DROP", "iptables -I INPUT -p udp --dport 4791 -j ACCEPT"},
			{"iptables: -A INPUT -p udp -m udp --dport 4791 -j DROP",
				"iptables -D INPUT -p udp -m udp --dport 4791 -j DROP"},
		}},
		{map[string]string{"nft": "table\nchain\n} # handle 1\n4791\n"}, nil},
		{nil, nil},
	} {
		e := machine(t, nil)
		e.command = func(name string, _ ...string) (string, error) {
			if text, ok := c.out[name]; ok {
				return text, nil
			}
			return "", errors.New("not there")
		}
		if got := e.suspects(); !slices.Equal(got, c.want) {
			t.Errorf("of %v:\ngot  %q\nwant %q", c.out, got, c.want)
		}
	}
}
