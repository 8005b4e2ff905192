package bugreport

import (
	"strings"
	"testing"
)

// TestHide: what tells whose machine it is, and what lets others forge its packets, is not in a report.
func TestHide(t *testing.T) {
	const text = `time=2026-11-28T13:07:58.276Z device netif=eth0 addresses="[192.0.2.1 fe80::1 127.0.0.1]"
13:07:58 RC QP 0x472163, peer 192.0.2.9: the packet with PSN 4211 was sent 8 times; lqpn 17 rkey=99
node_guid 7a99:fdae:49b6:a2d8, peer 192.0.2.9, version v0.1.0-0.20261128130758`
	const want = `time=2026-11-28T13:07:58.276Z device netif=eth0 addresses="[address1 address2 127.0.0.1]"
13:07:58 RC QP 0x#, peer address3: the packet with PSN # was sent 8 times; lqpn # rkey=#
node_guid address4, peer address3, version v0.1.0-0.20261128130758`
	if got := Hider()(text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestWrite: a command that fails does not keep the others from being in the report.
func TestWrite(t *testing.T) {
	var b strings.Builder
	err := Write(t.Context(), &b, [][]string{{"sh", "-c", "echo one; exit 3"}, {"no-such-program"}, {"echo", "two"}},
		strings.ToUpper)
	const want = "## SH -C ECHO ONE; EXIT 3\n\nONE\n(EXIT STATUS 3)\n\n## NO-SUCH-PROGRAM\n\n" +
		"(EXEC: \"NO-SUCH-PROGRAM\": EXECUTABLE FILE NOT FOUND IN $PATH)\n\n## ECHO TWO\n\nTWO\n\n"
	if err != nil || b.String() != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, &b, want)
	}
}
