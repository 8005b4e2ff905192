package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
)

// someStats are figures of two devices.
type someStats struct{}

func (someStats) Stats() map[string]roce.Stats {
	return map[string]roce.Stats{
		"goroce_eth0": {Stats: qp.Stats{SentPkts: 1 << 40, RcvdPkts: 2}},
		"goroce_eth1": {Stats: qp.Stats{SentPkts: 7}, RxICRCErrors: 3, OffloadOff: 2},
	}
}

func (someStats) Usage() []server.Usage {
	return []server.Usage{{UID: 0, Amount: map[string]int64{"connections": 2, "qps": 5, "cq_entries": 0,
		"pinned": 1 << 30}}, {UID: 65534, Amount: map[string]int64{"connections": 1, "qps": 1, "cq_entries": 64,
		"pinned": 0}}}
}

func (someStats) UserLimits() map[string]int64 {
	return map[string]int64{"connections": 1024, "qps": 32768, "cq_entries": 0, "pinned": 16 << 30}
}

func (someStats) Totals() server.Totals {
	return server.Totals{Clients: 9, Refused: map[string]uint64{"limit": 4, "other": 0}}
}

// TestMetrics: Prometheus's linter has no complaints, and each counter of each device,
// and what each user holds, is there.
func TestMetrics(t *testing.T) {
	w := httptest.NewRecorder()
	metricsHandler(someStats{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body := w.Body.String()
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, body)
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for device, stats := range (someStats{}).Stats() {
		for _, c := range stats.Counters() {
			if deviceGauges[c.Name] != "" {
				continue
			}
			if prefix := fmt.Sprintf("\ngoroce_%s_total{device=%q} ", c.Name, device); strings.Count(body,
				prefix) != 1 {
				t.Errorf("no %s", prefix)
			}
		}
	}
	for _, want := range []string{`goroce_sent_pkts_total{device="goroce_eth0"} 1.099511627776e+12`,
		`goroce_rx_icrc_errors_total{device="goroce_eth1"} 3`, "# TYPE goroce_offload_off gauge\n", `goroce_offload_off{device="goroce_eth1"} 2`,
		`goroce_clients{uid="0"} 2`, "goroce_clients_limit 1024\n", `goroce_pinned_bytes{uid="0"} 1.073741824e+09`, "goroce_pinned_limit_bytes 1.7179869184e+10\n",
		`goroce_objects{kind="qps",uid="0"} 5`, `goroce_objects{kind="cq_entries",uid="65534"} 64`, `goroce_objects_limit{kind="qps"} 32768`,
		"goroce_connections_total 9\n", `goroce_refused_requests_total{reason="limit"} 4`, `goroce_refused_requests_total{reason="other"} 0`,
		"process_open_fds ", "go_goroutines ", "go_build_info{"} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	if strings.Contains(body, "goroce_offload_off_total") {
		t.Error("what is no counter has a counter's name")
	}
}
