//go:build linux

package main

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
)

// figures are the sources of the metrics.
type figures interface {
	Stats() map[string]roce.Stats // by the devices' names
	Usage() []server.Usage
	UserLimits() map[string]int64
	Totals() server.Totals
}

// metricsHandler serves metrics of devices, users, the process and the Go runtime to Prometheus.
func metricsHandler(source figures) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newDeviceCollector(source), usageCollector{source}, collectors.NewGoCollector(),
		collectors.NewBuildInfoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
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

// deviceGauges are the statistics that do not count events; their names do not end in _total.
var deviceGauges = map[string]string{"offload_off": "Destinations to which segmentation offload is given up for now."}

func newDeviceCollector(source figures) *deviceCollector {
	c := &deviceCollector{source, map[string]deviceMetric{}}
	for _, counter := range new(roce.Stats).Counters() {
		name, help, kind := "goroce_"+counter.Name+"_total",
			"Counter "+counter.Name+" of an RDMA device since it was opened, as in hw_counters.",
			prometheus.CounterValue
		if text, gauge := deviceGauges[counter.Name]; gauge {
			name, help, kind = "goroce_"+counter.Name, text, prometheus.GaugeValue
		}
		c.metrics[counter.Name] = deviceMetric{prometheus.NewDesc(name, help, []string{"device"}, nil), kind}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *deviceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		to <- m.Desc
	}
}

// Collect implements prometheus.Collector.
func (c *deviceCollector) Collect(to chan<- prometheus.Metric) {
	for device, stats := range c.source.Stats() {
		for _, counter := range stats.Counters() {
			m := c.metrics[counter.Name]
			to <- prometheus.MustNewConstMetric(m.Desc, m.ValueType, float64(counter.Value), device)
		}
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

// Counters of the server.
var (
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
