package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/goroce/goroce/roce"
)

// deviceStats are the figures of the devices, by their names.
type deviceStats interface{ Stats() map[string]roce.Stats }

// metricsHandler serves the figures of devices, of the process and of the Go runtime to
// Prometheus.
func metricsHandler(source deviceStats) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newDeviceCollector(source), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// deviceCollector shows roce.Stats: goroce_NAME_total{device="..."}, where NAME is that
// of rdma_rxe's hw_counters.
type deviceCollector struct {
	source   deviceStats
	counters map[string]*prometheus.Desc
}

func newDeviceCollector(source deviceStats) *deviceCollector {
	c := &deviceCollector{source, map[string]*prometheus.Desc{}}
	for _, counter := range new(roce.Stats).Counters() {
		c.counters[counter.Name] = prometheus.NewDesc("goroce_"+counter.Name+"_total",
			"Counter "+counter.Name+" of an RDMA device since it was opened, as in hw_counters.", []string{"device"}, nil)
	}
	return c
}

// Describe is prometheus.Collector's.
func (c *deviceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.counters {
		to <- desc
	}
}

// Collect is prometheus.Collector's.
func (c *deviceCollector) Collect(to chan<- prometheus.Metric) {
	for device, stats := range c.source.Stats() {
		for _, counter := range stats.Counters() {
			to <- prometheus.MustNewConstMetric(c.counters[counter.Name], prometheus.CounterValue, float64(counter.Value), device)
		}
	}
}
