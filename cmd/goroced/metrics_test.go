package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/link"
)

// someStats are figures of two devices.
type someStats struct{}

func (someStats) Stats() map[string]roce.Stats {
	var eth0, eth1 roce.Stats
	eth0.SentPkts, eth0.RcvdPkts = 1<<40, 2
	eth1.SentPkts, eth1.RxICRCErrors, eth1.OffloadOff = 7, 3, 2
	eth1.Link = link.Stats{TxBytes: 4096, RxBytes: 17}
	eth0.CompletionLatency.Buckets[5], eth0.CompletionLatency.Buckets[roce.HistogramBounds] = 3, 1 // 4 of them
	eth0.CompletionLatency.Sum = 2_500_000
	eth1.RTT.Buckets[0] = 2
	return map[string]roce.Stats{"goroce_eth0": eth0, "goroce_eth1": eth1}
}

func (someStats) Devices() []admin.Device {
	return []admin.Device{{Name: "goroce_eth0", State: "PORT_ACTIVE", Link: "udp", NetIf: "eth0", MTU: 1024},
		{Name: "goroce_eth1", State: "PORT_DOWN", Link: "rawsock", NetIf: "eth1", MTU: 4096}}
}

func (someStats) QPSums() map[string]*server.QPSums {
	return map[string]*server.QPSums{"goroce_eth0": {States: [ib.NumQPStates]int{ib.StateRTS: 5, ib.StateErr: 1},
		Destinations: map[string]float64{"cubic": 2}, Window: 144, InFlight: 30, PaceBits: 8e9,
		MinRTT: 48 * time.Microsecond}, "goroce_eth1": {}}
}

func (someStats) Usage() []server.Usage {
	return []server.Usage{{UID: 0, Amount: map[string]int64{"connections": 2, "qps": 5, "cq_entries": 0,
		"pinned": 1 << 30, "heap": 1 << 20}}, {UID: 65534, Amount: map[string]int64{"connections": 1, "qps": 1,
		"cq_entries": 64, "pinned": 0}}}
}

func (someStats) UserLimits() map[string]int64 {
	return map[string]int64{"connections": 1024, "qps": 32768, "cq_entries": 0, "pinned": 16 << 30,
		"heap": 1 << 30}
}

func (someStats) Totals() server.Totals {
	return server.Totals{Clients: 9, Refused: map[string]uint64{"limit": 4, "other": 0}}
}

func (someStats) UserBytes() map[uint32]server.Bytes {
	return map[uint32]server.Bytes{0: {Sent: 7, Rcvd: 8}, 65534: {}}
}

// TestMetrics: Prometheus's linter has no complaints, and each counter of each device,
// and what each user holds, is there.
func TestMetrics(t *testing.T) {
	w := httptest.NewRecorder()
	metricsHandler(someStats{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body := w.Body.String()
	if w.Code != 200 {
		t.Fatalf("%d %s, want 200", w.Code, body)
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
			if gauges[c.Name] {
				continue
			}
			if prefix := fmt.Sprintf("\ngoroce_%s_total{device=%q} ", c.Name, device); strings.Count(body,
				prefix) != 1 {
				t.Errorf("%q %d times, want once", prefix, strings.Count(body, prefix))
			}
		}
	}
	for _, want := range []string{`goroce_sent_pkts_total{device="goroce_eth0"} 1.099511627776e+12`,
		`goroce_rx_icrc_errors_total{device="goroce_eth1"} 3`, "# TYPE goroce_offload_off gauge\n", `goroce_offload_off{device="goroce_eth1"} 2`,
		`goroce_clients{uid="0"} 2`, "goroce_clients_limit 1024\n", `goroce_pinned_bytes{uid="0"} 1.073741824e+09`, "goroce_pinned_limit_bytes 1.7179869184e+10\n",
		`goroce_objects{kind="qps",uid="0"} 5`, `goroce_objects{kind="cq_entries",uid="65534"} 64`, `goroce_objects_limit{kind="qps"} 32768`,
		`goroce_user_sent_bytes_total{uid="0"} 7`, `goroce_user_rcvd_bytes_total{uid="65534"} 0`,
		"goroce_connections_total 9\n", `goroce_refused_requests_total{reason="limit"} 4`, `goroce_refused_requests_total{reason="other"} 0`,
		`goroce_sent_bytes_total{device="goroce_eth1"} 4096`, `goroce_rcvd_bytes_total{device="goroce_eth1"} 17`,
		`goroce_port_state{device="goroce_eth0",state="PORT_ACTIVE"} 1`, `goroce_port_state{device="goroce_eth0",state="PORT_DOWN"} 0`,
		`goroce_port_state{device="goroce_eth1",state="PORT_DOWN"} 1`, `goroce_port_mtu_bytes{device="goroce_eth1"} 4096`,
		`goroce_device_info{device="goroce_eth1",link="rawsock",netif="eth1"} 1`,
		`goroce_qps{device="goroce_eth0",state="RTS"} 5`, `goroce_qps{device="goroce_eth1",state="RESET"} 0`,
		`goroce_destinations{congestion="cubic",device="goroce_eth0"} 2`, `goroce_window_packets{device="goroce_eth0"} 144`,
		`goroce_in_flight_packets{device="goroce_eth0"} 30`, `goroce_pace_bytes_per_second{device="goroce_eth0"} 1e+09`,
		`goroce_min_rtt_seconds{device="goroce_eth0"} 4.8e-05`, `goroce_window_packets{device="goroce_eth1"} 0`,
		`goroce_completion_latency_seconds_bucket{device="goroce_eth0",le="1.6e-05"} 0`,
		`goroce_completion_latency_seconds_bucket{device="goroce_eth0",le="3.2e-05"} 3`,
		`goroce_completion_latency_seconds_bucket{device="goroce_eth0",le="1.048576"} 3`,
		`goroce_completion_latency_seconds_bucket{device="goroce_eth0",le="+Inf"} 4`,
		`goroce_completion_latency_seconds_count{device="goroce_eth0"} 4`,
		`goroce_completion_latency_seconds_sum{device="goroce_eth0"} 2.5`,
		`goroce_rtt_seconds_bucket{device="goroce_eth1",le="1e-06"} 2`, `goroce_rtt_seconds_count{device="goroce_eth1"} 2`,
		`goroce_build_info{goversion="go1`,
		"process_open_fds ", "go_goroutines ", "go_build_info{"} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	for _, c := range new(roce.Stats).Counters() {
		if counterHelp[c.Name] == "" {
			t.Errorf("nothing says what %s counts", c.Name)
		}
	}
	if n := len(new(roce.Stats).Counters()); len(counterHelp) != n {
		t.Errorf("%d counters are explained, want %d", len(counterHelp), n)
	}
	if strings.Contains(body, "goroce_offload_off_total") {
		t.Error("what is no counter has a counter's name")
	}
}
