package admin

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	srv "github.com/goroce/goroce/roce/daemon/server"
)

// TestCounters: an object in JSON, in order; what was added.
func TestCounters(t *testing.T) {
	const text = `{"sent_pkts":18446744073709551615,"rcvd_pkts":7,"ack_deferred":0}`
	var c Counters
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if b, err := json.Marshal(c); err != nil || string(b) != text {
		t.Errorf("%s, %v; want %s", b, err, text)
	}
	want := Counters{{"sent_pkts", 1}, {"rcvd_pkts", 7}, {"ack_deferred", 0}}
	if diff := cmp.Diff(want, c.Since(Counters{{"sent_pkts", 1<<64 - 2}, {"rcvd_pkts", 8}})); diff != "" {
		t.Errorf("since (-want +got), where the second began anew:\n%s", diff)
	}
	for _, bad := range []string{`[]`, `7`, `{"a":-1}`, `{"a":"b"}`, `{"a":1.5}`} {
		if err := json.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("%s is taken for counters, want an error", bad)
		}
	}
}

// TestGUID: as text in JSON.
func TestGUID(t *testing.T) {
	for _, g := range []GUID{0, 0x46b3_daaf_4dc1_3f68, 1<<64 - 1} {
		var got GUID
		text, err := json.Marshal(g)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got != g {
			t.Errorf("%#x by %s, %v; want %#x", uint64(got), text, err, uint64(g))
		}
	}
	if text, _ := json.Marshal(GUID(0x46b3_daaf_4dc1_3f68)); string(text) != `"46b3:daaf:4dc1:3f68"` {
		t.Errorf("%s, want %q", text, `"46b3:daaf:4dc1:3f68"`)
	}
	if err := json.Unmarshal([]byte(`"nonsense"`), new(GUID)); err == nil {
		t.Error("nonsense is taken for a GUID")
	}
}

// TestPrintQPs: each kind of QP has the fields that rdma shows of it.
func TestPrintQPs(t *testing.T) {
	owner := srv.Owner{PID: 7, Comm: "app"}
	var b strings.Builder
	err := PrintQPs(&b, term.Terminal{}, []srv.QPInfo{
		{Device: "a", QPN: 1, Type: "GSI", State: "RTS", Owner: owner},
		{Device: "a", QPN: 17, Type: "RC", State: "RESET", Owner: owner},
		{Device: "a", QPN: 18, PeerQPN: 19, Type: "UC", State: "RTS", RQPSN: 5, SQPSN: 6, Owner: owner},
		{Device: "a", QPN: 20, Type: "UD", State: "ERR", SQPSN: 9, Owner: owner},
		{Device: "a", QPN: 21, PeerQPN: 22, Type: "XRC_INI", State: "RTR", Owner: owner},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `link a/1 lqpn 1 type GSI state RTS sq-psn 0 pid 7 comm app 
link a/1 lqpn 17 rqpn 0 type RC state RESET rq-psn 0 sq-psn 0 path-mig-state MIGRATED pid 7 comm app 
link a/1 lqpn 18 rqpn 19 type UC state RTS rq-psn 5 sq-psn 6 path-mig-state MIGRATED pid 7 comm app 
link a/1 lqpn 20 type UD state ERR sq-psn 9 pid 7 comm app 
link a/1 lqpn 21 type XRC_INI state RTR sq-psn 0 path-mig-state MIGRATED pid 7 comm app 
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestPrintQPStats: what a queue pair has sent is below it, and the way to its peer if it has one that is shared by
// window and pace.
func TestPrintQPStats(t *testing.T) {
	owner := srv.Owner{PID: 7, Comm: "app"}
	var b strings.Builder
	err := PrintQPStats(&b, term.Terminal{}, []srv.QPInfo{
		{Device: "a", QPN: 17, PeerQPN: 18, Type: "RC", State: "RTS", Peer: netip.MustParseAddr("192.0.2.7"),
			Owner: owner,
			Traffic: &srv.Traffic{SentBytes: 12345, RcvdBytes: 678, SentMessages: 3, RcvdMessages: 4, ResentPkts: 5,
				ResentBytes: 5300, SpuriousPkts: 1, SentRNR: 6, RcvdRNR: 7, Control: "dcqcn", Window: 100, InFlight: 30,
				PaceBits: 9_876_543_210, RTT: 61_499, MinRTT: 48_000, SACK: true, MarkedPkts: 8, RcvdCNPs: 9,
				PathQPs: 2}},
		{Device: "a", QPN: 19, Type: "RC", State: "INIT", Owner: owner, Traffic: &srv.Traffic{}},
		{Device: "a", Type: "RC", State: "RTS", Owner: owner}, // another user's
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `link a/1 lqpn 17 rqpn 18 type RC state RTS rq-psn 0 sq-psn 0 path-mig-state MIGRATED pid 7 comm app 
    sent_bytes 12345 rcvd_bytes 678 sent_messages 3 rcvd_messages 4 resent_pkts 5 resent_bytes 5300 spurious_pkts 1 ` +
		`send_rnr_err 6 rcvd_rnr_err 7
    peer 192.0.2.7 congestion dcqcn window 100 in_flight 30 pace 9.877Gb/s rtt 61us min_rtt 48us marked_pkts 8 ` +
		`rcvd_cnps 9 sack yes path_qps 2
link a/1 lqpn 19 rqpn 0 type RC state INIT rq-psn 0 sq-psn 0 path-mig-state MIGRATED pid 7 comm app 
    sent_bytes 0 rcvd_bytes 0 sent_messages 0 rcvd_messages 0 resent_pkts 0 resent_bytes 0 spurious_pkts 0 ` +
		`send_rnr_err 0 rcvd_rnr_err 0
link a/1 type RC state RTS pid 7 comm app 
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestPrintStats: what is not zero, bytes first, with what was added.
func TestPrintStats(t *testing.T) {
	all := map[string]Counters{"a": {{"sent_pkts", 100}, {"rcvd_pkts", 0}, {"rdma_sends", 3},
		{SentBytes, 12_345_678}}}
	added := map[string]Counters{"a": {{"sent_pkts", 10}, {"rcvd_pkts", 0}, {"rdma_sends", 0},
		{SentBytes, 250_000_000}}}
	for _, c := range []struct {
		added map[string]Counters
		want  string
	}{{nil, `            a     total
   sent_bytes   12.3 MB
   rcvd_bytes       0 B
    sent_pkts       100
   rdma_sends         3
`}, {added, `            a     total        in 2s
   sent_bytes   12.3 MB   1.000 Gb/s
   rcvd_bytes       0 B   0.000 Gb/s
    sent_pkts       100           10
   rdma_sends         3            0
`}} {
		var b strings.Builder
		if err := PrintStats(&b, term.Terminal{}, all, c.added, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestPrintStatus: a daemon with two devices, and its rates since the status before.
func TestPrintStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(sent uint64, now time.Time) *Status {
		return &Status{Version: map[string]any{"version": "v0.1.0"}, PID: 7, Started: now.Add(-50 * time.Hour),
			Now: now, Clients: 3, Users: []srv.Usage{{UID: 4_000_000_000,
				Amount: map[string]int64{"connections": 3, "qps": 1, "mrs": 2, "pinned": 1 << 20}}},
			Devices: []Device{{Name: "blue", State: "PORT_ACTIVE", Link: "udp", NetIf: "eth0", MTU: 1024, Shards: 1,
				Addresses:  []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1")},
				GIDIndexes: []int{1, 4}, Since: now.Add(-90 * time.Minute), SentBytes: sent, RcvdBytes: 999},
				{Name: "red", State: "PORT_DOWN", Link: "rawsock", NetIf: "eth1", MTU: 4096, Shards: 2,
					Since: now.Add(-3 * time.Second), Faults: 2, SendErr: 1, RxOverflow: 20}}}
	}
	const want = `goroced v0.1.0, process 7, for 2 days 2h: 3 connections of 1 user
blue: active for 1h30m, interface eth0, link udp, MTU 1024, 1 shard
    GID 1: 192.0.2.1
    GID 4: fe80::1
    sent 2.0 GB, received 999 B; at present 8.00 and 0.00 Gb/s
red: down for 3s, interface eth1, link rawsock, MTU 4096, 2 shards
    sent 0 B, received 0 B; at present 0.00 and 0.00 Gb/s
    the kernel dropped 20 packets for which the receive buffer had no room:
      ` + "`goroced doctor`" + ` says how large it is, and the sysctl that raises it
      (net.core.rmem_max); if it is large, more shards empty it sooner
    the kernel refused to send 1 packet: a firewall (EPERM), a full queue of the
      interface (ENOBUFS; ` + "`ip link set eth1 txqueuelen 10000`" + `), or a smaller path
      MTU (EMSGSIZE)
    faults are injected into its packets: 2; ` + "`goroced fault list`" + ` shows them
user 4000000000: 3 connections, 1 queue pair, 2 memory regions, 1.0 MB pinned
`
	var b strings.Builder
	if err := PrintStatus(&b, term.Terminal{}, at(2e9, now), at(1e9, now.Add(-time.Second))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	b.Reset()
	if err := PrintStatus(&b, term.Terminal{}, at(5, now), at(9, now.Add(-time.Second))); err != nil ||
		strings.Contains(strings.Split(b.String(), "\n")[4], "present") {
		t.Errorf("got %v and rates of another daemon's counters, want none:\n%s", err, &b)
	}
}
