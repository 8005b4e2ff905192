//go:build linux

package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goroce/goroce/roce"
)

// Histograms of devices. The bounds are fixed and there is none for a queue pair, so a device has as many series with a
// thousand queue pairs as with one.
var (
	completionLatency = prometheus.NewDesc("goroce_completion_latency_seconds",
		"Time from when the device took a request out of its send queue to its completion: "+
			"signaled requests of reliable services that have succeeded.", []string{"device"}, nil)
	roundTrip = prometheus.NewDesc("goroce_rtt_seconds",
		"Round trips to the peers, with their delay of ACKs: "+
			"packets that were sent once, one at a time for each queue pair.",
		[]string{"device"}, nil)
)

// latencyCollector collects how long requests and round trips take.
type latencyCollector struct{ source figures }

// Describe implements prometheus.Collector.
func (latencyCollector) Describe(to chan<- *prometheus.Desc) {
	to <- completionLatency
	to <- roundTrip
}

// Collect implements prometheus.Collector.
func (c latencyCollector) Collect(to chan<- prometheus.Metric) {
	for device, stats := range c.source.Stats() {
		to <- histogram(completionLatency, &stats.CompletionLatency, device)
		to <- histogram(roundTrip, &stats.RTT, device)
	}
}

// histogram returns h in Prometheus's form, in which a bucket has what is in those before it, too.
func histogram(desc *prometheus.Desc, h *roce.Histogram, labels ...string) prometheus.Metric {
	const second = 1e6 // in microseconds
	upTo, sum := map[float64]uint64{}, uint64(0)
	for i, n := range h.Buckets[:roce.HistogramBounds] {
		sum += n
		upTo[float64(uint64(1)<<i)/second] = sum
	}
	return prometheus.MustNewConstHistogram(desc, h.Count(), float64(h.Sum)/second, upTo, labels...)
}
