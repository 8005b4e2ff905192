package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce"
)

// someStats are figures of two devices.
type someStats struct{}

func (someStats) Stats() map[string]roce.Stats {
	return map[string]roce.Stats{
		"goroce_eth0": {Stats: qp.Stats{SentPkts: 1 << 40, RcvdPkts: 2}},
		"goroce_eth1": {Stats: qp.Stats{SentPkts: 7}, RxICRCErrors: 3},
	}
}

// TestMetrics: Prometheus's linter has no complaints, and each counter of each device
// is there.
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
			if prefix := fmt.Sprintf("\ngoroce_%s_total{device=%q} ", c.Name, device); strings.Count(body, prefix) != 1 {
				t.Errorf("no %s", prefix)
			}
		}
	}
	for _, want := range []string{`goroce_sent_pkts_total{device="goroce_eth0"} 1.099511627776e+12`, `goroce_rx_icrc_errors_total{device="goroce_eth1"} 3`,
		"process_open_fds ", "go_goroutines "} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
}
