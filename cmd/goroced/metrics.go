//go:build linux

package main

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
)

// figures are the sources of the metrics.
type figures interface {
	Stats() map[string]roce.Stats // by the devices' names
	Devices() []admin.Device
	QPSums() map[string]*server.QPSums // by the devices' names
	Usage() []server.Usage
	UserLimits() map[string]int64
	Totals() server.Totals
	UserBytes() map[uint32]server.Bytes
}

// metricsRegistry has metrics of devices, users, the process and the Go runtime.
func metricsRegistry(source figures) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newDeviceCollector(source), latencyCollector{source}, portCollector{source},
		usageCollector{source}, buildInfo(),
		collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// metricsHandler serves the metrics to Prometheus.
func metricsHandler(source figures) http.Handler {
	return promhttp.HandlerFor(metricsRegistry(source), promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// buildInfo is what runs here: a gauge whose value is always 1.
func buildInfo() prometheus.Collector {
	v := readVersion()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "goroce_build_info",
		Help:        "The running daemon, in labels; always 1.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "goversion": v.Go}})
	g.Set(1)
	return g
}

// deviceCollector collects roce.Stats as goroce_NAME_total{device="..."}. NAME is as in rdma_rxe's hw_counters.
type deviceCollector struct {
	source  figures
	metrics map[string]deviceMetric
}

type deviceMetric struct {
	*prometheus.Desc
	prometheus.ValueType
}

// gauges are the statistics that do not count events; their names do not end in _total.
var gauges = map[string]bool{"offload_off": true}

// Bytes that devices have sent and received.
var (
	sentBytes = prometheus.NewDesc("goroce_sent_bytes_total",
		"Bytes sent, from the BTH to the ICRC of each packet: without UDP, IP and Ethernet headers.",
		[]string{"device"}, nil)
	receivedBytes = prometheus.NewDesc("goroce_rcvd_bytes_total",
		"Bytes received, from the BTH to the ICRC of each packet: without UDP, IP and Ethernet headers.",
		[]string{"device"}, nil)
)

func newDeviceCollector(source figures) *deviceCollector {
	c := &deviceCollector{source, map[string]deviceMetric{}}
	for _, counter := range new(roce.Stats).Counters() {
		name, kind := "goroce_"+counter.Name+"_total", prometheus.CounterValue
		if gauges[counter.Name] {
			name, kind = "goroce_"+counter.Name, prometheus.GaugeValue
		}
		desc := prometheus.NewDesc(name, counterHelp[counter.Name], []string{"device"}, nil)
		c.metrics[counter.Name] = deviceMetric{desc, kind}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *deviceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		to <- m.Desc
	}
	to <- sentBytes
	to <- receivedBytes
}

// Collect implements prometheus.Collector.
func (c *deviceCollector) Collect(to chan<- prometheus.Metric) {
	for device, stats := range c.source.Stats() {
		for _, counter := range stats.Counters() {
			m := c.metrics[counter.Name]
			to <- prometheus.MustNewConstMetric(m.Desc, m.ValueType, float64(counter.Value), device)
		}
		to <- prometheus.MustNewConstMetric(sentBytes, prometheus.CounterValue, float64(stats.Link.TxBytes), device)
		to <- prometheus.MustNewConstMetric(receivedBytes, prometheus.CounterValue, float64(stats.Link.RxBytes), device)
	}
}

// portCollector collects what devices are, and what state they and their queue pairs are in.
type portCollector struct{ source figures }

var (
	deviceInfo = prometheus.NewDesc("goroce_device_info", "A device, with its link and network interface; always 1.",
		[]string{"device", "link", "netif"}, nil)
	portState = prometheus.NewDesc("goroce_port_state",
		"State of the port in ibv_devinfo's words: 1 for the one that it is in, 0 for the other.",
		[]string{"device", "state"}, nil)
	portMTU = prometheus.NewDesc("goroce_port_mtu_bytes", "Active MTU of the port: the largest payload of a packet.",
		[]string{"device"}, nil)
	qpsByState = prometheus.NewDesc("goroce_qps", "Queue pairs of clients that are in a state.",
		[]string{"device", "state"}, nil)
	destinations = prometheus.NewDesc("goroce_destinations",
		"Destinations of clients' queue pairs, one for each user and shard, with their congestion control.",
		[]string{"device", "congestion"}, nil)
	windowPackets = prometheus.NewDesc("goroce_window_packets",
		"Congestion windows of all destinations together, in packets.", []string{"device"}, nil)
	inFlightPackets = prometheus.NewDesc("goroce_in_flight_packets",
		"Packets that were sent and not acknowledged yet, to all destinations.", []string{"device"}, nil)
	paceBytes = prometheus.NewDesc("goroce_pace_bytes_per_second",
		"What may leave in a second to all destinations whose pace is limited, in bytes of payload.",
		[]string{"device"}, nil)
	minRTT = prometheus.NewDesc("goroce_min_rtt_seconds",
		"The shortest round trip to a destination of clients' queue pairs; 0 before one was measured.",
		[]string{"device"}, nil)
	faults = prometheus.NewDesc("goroce_faults", "Faults that `goroced fault` injects into the packets of a device.",
		[]string{"device"}, nil)
)

// Describe implements prometheus.Collector.
func (portCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{deviceInfo, portState, portMTU, qpsByState, faults, destinations,
		windowPackets, inFlightPackets, paceBytes, minRTT} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c portCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	qps := c.source.QPSums()
	for _, d := range c.source.Devices() {
		gauge(deviceInfo, 1, d.Name, d.Link, d.NetIf)
		gauge(portMTU, float64(d.MTU), d.Name)
		gauge(faults, float64(d.Faults), d.Name)
		for _, s := range []ib.PortState{ib.PortDown, ib.PortActive} {
			is := 0.0
			if d.State == s.String() {
				is = 1
			}
			gauge(portState, is, d.Name, s.String())
		}
		sum := qps[d.Name]
		if sum == nil {
			continue // the device has just come
		}
		for state, n := range sum.States {
			gauge(qpsByState, float64(n), d.Name, ib.QPState(state).String())
		}
		for control, n := range sum.Destinations {
			gauge(destinations, n, d.Name, control)
		}
		gauge(windowPackets, sum.Window, d.Name)
		gauge(inFlightPackets, sum.InFlight, d.Name)
		gauge(paceBytes, sum.PaceBits/8, d.Name)
		gauge(minRTT, sum.MinRTT.Seconds(), d.Name)
	}
}

// usageCollector collects what users with clients hold, and their limits. There is a series for each such user, none
// for each client.
type usageCollector struct{ source figures }

// userGauges are the gauges of a user, with those of its limits. The keys are those of limits.user in the
// configuration. All other keys are kinds of objects.
var userGauges = map[string]struct{ used, limit *prometheus.Desc }{
	"connections": userGauge("goroce_clients", "goroce_clients_limit", "clients"),
	"pinned":      userGauge("goroce_pinned_bytes", "goroce_pinned_limit_bytes", "bytes of memory"),
	"heap":        userGauge("goroce_heap_bytes", "goroce_heap_limit_bytes", "bytes of the daemon's own memory"),
}

// userObjects is for the other keys; its label is the key.
var userObjects = userGauge("goroce_objects", "goroce_objects_limit", "objects of a kind", "kind")

func userGauge(used, limit, what string, labels ...string) struct{ used, limit *prometheus.Desc } {
	return struct{ used, limit *prometheus.Desc }{
		prometheus.NewDesc(used, "How many "+what+" a user has.", append([]string{"uid"}, labels...), nil),
		prometheus.NewDesc(limit, "How many "+what+" each user may have; 0 is no limit.", labels, nil),
	}
}

// Counters of users and of the server.
var (
	userSent = prometheus.NewDesc("goroce_user_sent_bytes_total",
		"Bytes of packets that the queue pairs of a user have sent, since it had no client.", []string{"uid"}, nil)
	userRcvd = prometheus.NewDesc("goroce_user_rcvd_bytes_total",
		"Bytes of packets that the queue pairs of a user have received, since it had no client.", []string{"uid"}, nil)

	connectedTotal = prometheus.NewDesc("goroce_connections_total", "Clients that have connected.", nil, nil)
	refusedTotal   = prometheus.NewDesc("goroce_refused_requests_total", "Requests of clients that were refused.",
		[]string{"reason"}, nil)
	faultsTotal = prometheus.NewDesc("goroce_client_memory_faults_total",
		"Times that memory which a client shares was not there; the client was dropped.", nil, nil)
)

// Describe implements prometheus.Collector.
func (usageCollector) Describe(to chan<- *prometheus.Desc) {
	for _, g := range userGauges {
		to <- g.used
		to <- g.limit
	}
	to <- userObjects.used
	to <- userObjects.limit
	to <- userSent
	to <- userRcvd
	to <- connectedTotal
	to <- refusedTotal
	to <- faultsTotal
}

// Collect implements prometheus.Collector.
func (c usageCollector) Collect(to chan<- prometheus.Metric) {
	totals := c.source.Totals()
	to <- prometheus.MustNewConstMetric(connectedTotal, prometheus.CounterValue, float64(totals.Clients))
	to <- prometheus.MustNewConstMetric(faultsTotal, prometheus.CounterValue, float64(totals.Faults))
	for reason, n := range totals.Refused {
		to <- prometheus.MustNewConstMetric(refusedTotal, prometheus.CounterValue, float64(n), reason)
	}
	for key, limit := range c.source.UserLimits() {
		desc, labels := userObjects.limit, []string{key}
		if g, ok := userGauges[key]; ok {
			desc, labels = g.limit, nil
		}
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(limit), labels...)
	}
	for uid, b := range c.source.UserBytes() {
		label := strconv.FormatUint(uint64(uid), 10)
		to <- prometheus.MustNewConstMetric(userSent, prometheus.CounterValue, float64(b.Sent), label)
		to <- prometheus.MustNewConstMetric(userRcvd, prometheus.CounterValue, float64(b.Rcvd), label)
	}
	for _, u := range c.source.Usage() {
		uid := strconv.FormatUint(uint64(u.UID), 10)
		for key, used := range u.Amount {
			desc, labels := userObjects.used, []string{uid, key}
			if g, ok := userGauges[key]; ok {
				desc, labels = g.used, []string{uid}
			}
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(used), labels...)
		}
	}
}
