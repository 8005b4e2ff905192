package admin

import (
	"encoding/json"
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
		t.Errorf("%s becomes %s, %v", text, b, err)
	}
	want := Counters{{"sent_pkts", 1}, {"rcvd_pkts", 7}, {"ack_deferred", 0}}
	if diff := cmp.Diff(want, c.Since(Counters{{"sent_pkts", 1<<64 - 2}, {"rcvd_pkts", 8}})); diff != "" {
		t.Errorf("since (-want +got), where the second began anew:\n%s", diff)
	}
	for _, bad := range []string{`[]`, `7`, `{"a":-1}`, `{"a":"b"}`, `{"a":1.5}`} {
		if err := json.Unmarshal([]byte(bad), &c); err == nil {
			t.Errorf("%s is taken for counters", bad)
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
			t.Errorf("%#x becomes %s and %#x, %v", uint64(g), text, uint64(got), err)
		}
	}
	if text, _ := json.Marshal(GUID(0x46b3_daaf_4dc1_3f68)); string(text) != `"46b3:daaf:4dc1:3f68"` {
		t.Errorf("%s", text)
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

// TestPrintChange: what is not zero, with what was added.
func TestPrintChange(t *testing.T) {
	all := map[string]Counters{"a": {{"sent_pkts", 100}, {"rcvd_pkts", 0}, {"rdma_sends", 3}}}
	added := map[string]Counters{"a": {{"sent_pkts", 10}, {"rcvd_pkts", 0}, {"rdma_sends", 0}}}
	var b strings.Builder
	if err := PrintChange(&b, all, added, time.Second); err != nil {
		t.Fatal(err)
	}
	const want = "\x1b[H\x1b[2J" + `            a   total   in 1s
    sent_pkts     100      10
   rdma_sends       3       0
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
