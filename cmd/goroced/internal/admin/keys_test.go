package admin

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	srv "github.com/goroce/goroce/roce/daemon/server"
)

const (
	me = iota + 1000
	other
)

func onlyMine(uid uint32) bool { return uid == me }
func all(uint32) bool          { return true }
func none(uint32) bool         { return false }

// TestKeys: users see the memory regions of others, and nothing that reaches them.
func TestKeys(t *testing.T) {
	const hidden, mine, theirs = "dev blue mrlen 32 pid 41 comm app memory process (short)\n",
		"dev blue mrn 7 rkey 0x712 lkey 0x712 iova 0x7f0000001000 mrlen 64 pid 42 comm app memory memfd\n",
		"dev blue mrn 3 rkey 0x301 lkey 0x301 iova 0x7f0000002000 mrlen 32 pid 41 comm app memory process (short)\n"
	for _, c := range []struct {
		sees func(uint32) bool
		want string
		keys int
	}{{all, theirs + mine, 2}, {onlyMine, hidden + mine, 1}} {
		list := mrsFor([]srv.MRInfo{
			{Device: "blue", Number: 3, Key: 0x301, IOVA: 0x7f0000002000, Length: 32,
				Kind: "process", Why: "short", Owner: srv.Owner{PID: 41, UID: other, Comm: "app"}},
			{Device: "blue", Number: 7, Key: 0x712, IOVA: 0x7f0000001000, Length: 64,
				Kind: "memfd", Owner: srv.Owner{PID: 42, UID: me, Comm: "app"}}}, c.sees)
		var text bytes.Buffer
		if err := PrintMRs(&text, term.Terminal{}, list); err != nil || text.String() != c.want {
			t.Errorf("%q, %v; want %q", &text, err, c.want)
		}
		text.Reset()
		if err := json.NewEncoder(&text).Encode(list); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"mrn", "lkey", "iova"} {
			if n := strings.Count(text.String(), secret); n != c.keys {
				t.Errorf("%s is shown of %d regions, want %d: %s", secret, n, c.keys, &text)
			}
		}
	}
}

// TestConnections: users see the queue pairs of others, and nothing that a packet for them must
// have.
func TestConnections(t *testing.T) {
	pair := []srv.QPInfo{
		{Device: "blue", QPN: 111111, PeerQPN: 222222, Type: "RC", State: "RTS", RQPSN: 333333, SQPSN: 444444,
			Peer: netip.MustParseAddr("192.0.2.7"), PathMTU: 1024,
			Owner: srv.Owner{PID: 42, UID: me, Comm: "app"}},
		{Device: "blue", QPN: 555555, PeerQPN: 666666, Type: "RC", State: "RTS", RQPSN: 777777, SQPSN: 888888,
			Peer: netip.MustParseAddr("192.0.2.8"), PathMTU: 1024,
			Owner: srv.Owner{PID: 41, UID: other, Comm: "theirs"}}}
	const mine = "link blue/1 lqpn 111111 rqpn 222222 type RC state RTS rq-psn 333333 sq-psn 444444 path-mig-state " +
		"MIGRATED pid 42 comm app \n"
	for _, c := range []struct {
		sees func(uint32) bool
		want string
	}{
		{all, mine + "link blue/1 lqpn 555555 rqpn 666666 type RC state RTS rq-psn 777777 sq-psn 888888 " +
			"path-mig-state MIGRATED pid 41 comm theirs \n"},
		{onlyMine, "link blue/1 type RC state RTS pid 41 comm theirs \n" + mine},
	} {
		list := qpsFor(slices.Clone(pair), c.sees)
		var text, data bytes.Buffer
		if err := PrintQPs(&text, term.Terminal{}, list); err != nil || text.String() != c.want {
			t.Errorf("%q, %v; want %q", &text, err, c.want)
		}
		if err := json.NewEncoder(&data).Encode(list); err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"555555", "666666", "777777", "888888", "192.0.2.8"} {
			if shown := strings.Contains(data.String(), secret); shown != c.sees(other) {
				t.Errorf("%s is shown: %v, want %v", secret, shown, c.sees(other))
			}
		}
		for _, own := range []string{"111111", "222222", "333333", "444444", "192.0.2.7"} {
			if !strings.Contains(data.String(), own) {
				t.Errorf("%s, which is one's own, is not shown", own)
			}
		}
	}
}

// TestCMIDs: users see that others have IDs, and where these listen, but not with whom they talk.
func TestCMIDs(t *testing.T) {
	port, peer := netip.MustParseAddrPort("192.0.2.1:7174"), netip.MustParseAddrPort("192.0.2.9:4001")
	list := []srv.CMInfo{
		{Device: "blue", State: "LISTEN", Space: "TCP", Type: "RC", Local: port,
			Owner: srv.Owner{PID: 41, UID: other, Comm: "theirs"}},
		{Device: "blue", State: "CONNECT", Space: "TCP", Type: "RC", Local: port, Remote: peer,
			Owner: srv.Owner{PID: 41, UID: other, Comm: "theirs"}},
		{Device: "blue", State: "IDLE", Space: "UDP", Type: "UD", Owner: srv.Owner{PID: 42, UID: me, Comm: "app"}},
	}
	const idle = "link blue/1 qp-type UD state IDLE ps UDP pid 42 comm app \n"
	const listening = "link blue/1 state LISTEN ps TCP pid 41 comm theirs src-addr 192.0.2.1:7174 \n"
	const connected = "link blue/1 qp-type RC state CONNECT ps TCP pid 41 comm theirs "
	for _, c := range []struct {
		sees func(uint32) bool
		want string
	}{
		{all, idle + listening + connected + "src-addr 192.0.2.1:7174 dst-addr 192.0.2.9:4001 \n"},
		{onlyMine, connected + "\n" + idle + listening},
	} {
		var text strings.Builder
		err := PrintCMIDs(&text, term.Terminal{}, cmFor(slices.Clone(list), c.sees))
		if err != nil || text.String() != c.want {
			t.Errorf("%q, %v; want %q", &text, err, c.want)
		}
	}
}

// TestFailures: users are not told why queue pairs of others have failed, as that names keys and addresses.
func TestFailures(t *testing.T) {
	list := []srv.FailureInfo{
		{Device: "blue", QPN: 0x111, Type: "RC", Peer: netip.MustParseAddr("192.0.2.7"), PeerQPN: 0x222,
			Failed: "silence", Refused: "a key", Owner: srv.Owner{PID: 42, UID: me, Comm: "app"}},
		{Device: "blue", QPN: 0x555, Type: "UD", Failed: "theirs", Owner: srv.Owner{PID: 41, UID: other}}}
	const mine = "blue: RC QP 0x111 of process 42 (app), peer 192.0.2.7 QP 0x222\n" +
		"    has failed: silence\n    before: a key\n"
	const theirs = "blue: UD QP 0x555 of process 41\n    has failed: theirs\n"
	date := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d `)
	for _, c := range []struct {
		sees func(uint32) bool
		want string
	}{{all, mine + theirs}, {onlyMine, mine}, {none, "no queue pair has failed\n"}} {
		var text bytes.Buffer
		err := PrintFailures(&text, term.Terminal{}, failuresFor(slices.Clone(list), c.sees))
		if got := date.ReplaceAllString(text.String(), ""); err != nil || got != c.want {
			t.Errorf("got %q, %v, want %q", got, err, c.want)
		}
	}
}
