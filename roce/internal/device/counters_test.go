package device_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/internal/device"
	"github.com/goroce/goroce/roce/internal/engine"
)

// errorCounters has what each end counts under mlx5's names. Counters that are not listed stay 0.
var errorCounters = []struct {
	name   string
	change func(*ib.QPAttr) // of both QPs
	do     func(w *world)
	a, b   map[string]uint64
}{
	{"WRITE, READ and an atomic", nil, func(w *world) {
		for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRRead, ib.WRFetchAdd, ib.WRCompareSwap, ib.WRAtomicWrite} {
			w.send(w.a, ib.SendWR{Opcode: op, SGL: w.a.sge(0, 8), RemoteAddr: w.b.mr.Addr(), RKey: w.b.mr.RKey()})
			w.poll(w.a)
		}
	}, nil, map[string]uint64{"rx_write_requests": 1, "rx_read_requests": 1, "rx_atomic_requests": 2}},
	{"wrong key", nil, func(w *world) {
		w.recv(w.b, ib.RecvWR{})
		w.write(0, 8, func(wr *ib.SendWR) { wr.RKey ^= 0x77 })
		w.write(0, 8, nil)
	}, map[string]uint64{"req_remote_access_errors": 1, "req_cqe_error": 2, "req_cqe_flush_error": 1},
		map[string]uint64{"resp_remote_access_errors": 1, "resp_cqe_error": 1, "resp_cqe_flush_error": 1}},
	{"QP without the right", func(a *ib.QPAttr) { a.Access = ib.RemoteRead },
		func(w *world) { w.write(0, 8, nil) },
		map[string]uint64{"req_remote_invalid_request": 1, "req_cqe_error": 1}, nil},
	{"message longer than the receive", nil, func(w *world) {
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 10)})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 100)})
	}, map[string]uint64{"req_remote_invalid_request": 1, "req_cqe_error": 1},
		map[string]uint64{"resp_local_length_error": 1, "resp_cqe_error": 1}},
	{"no receive", func(a *ib.QPAttr) { a.RNRRetry = 2 }, func(w *world) {
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10)})
	}, map[string]uint64{"req_cqe_error": 1, "req_rnr_retries_exceeded": 1, "rnr_nak_retry_err": 3},
		map[string]uint64{"out_of_buffer": 3}},
	{"silence", func(a *ib.QPAttr) { a.RetryCnt = 2 }, func(w *world) {
		must(w.t, w.b.qp.Close())
		w.write(0, 8, nil)
	}, map[string]uint64{"req_cqe_error": 1, "req_transport_retries_exceeded": 1, "local_ack_timeout_err": 3}, nil},
	{"own key", nil, func(w *world) { w.write(0, 8, func(wr *ib.SendWR) { wr.SGL[0].LKey ^= 0x55 }) },
		map[string]uint64{"req_cqe_error": 1}, nil},
	{"a packet is lost", nil, func(w *world) {
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 4096)})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 4096)})
	}, map[string]uint64{"packet_seq_err": 1}, map[string]uint64{"out_of_sequence": 2}},
}

// mlx5Names are the counters of mlx5 that are compared.
var mlx5Names = []string{"rx_write_requests", "rx_read_requests", "rx_atomic_requests", "out_of_buffer",
	"out_of_sequence", "duplicate_request", "rnr_nak_retry_err", "packet_seq_err", "implied_nak_seq_err",
	"local_ack_timeout_err", "resp_local_length_error", "resp_cqe_error", "req_cqe_error", "req_remote_invalid_request",
	"req_remote_access_errors", "resp_remote_access_errors", "resp_cqe_flush_error", "req_cqe_flush_error",
	"req_transport_retries_exceeded", "req_rnr_retries_exceeded", "rx_icrc_encapsulated", "np_ecn_marked_roce_packets"}

// TestErrorCounters: both ends count what has gone wrong.
func TestErrorCounters(t *testing.T) {
	for _, c := range errorCounters {
		t.Run(c.name, func(t *testing.T) {
			how := plain
			if c.name == "a packet is lost" {
				how.below = lossy
			}
			w := newWorld(t, 1, 4096, how)
			w.connect(1024, c.change)
			c.do(w)
			w.settle()
			for w.advance() {
			}
			for _, end := range []struct {
				name string
				dev  *device.Device
				want map[string]uint64
			}{{"A", w.a.dev, c.a}, {"B", w.b.dev, c.b}} {
				stats := end.dev.Stats()
				got := map[string]uint64{}
				for _, n := range stats.Counters() {
					if n.Value > 0 && slices.Contains(mlx5Names, n.Name) {
						got[n.Name] = n.Value
					}
				}
				if !maps.Equal(got, end.want) {
					t.Errorf("%s: got %v, want %v", end.name, got, end.want)
				}
			}
		})
	}
	names := map[string]bool{}
	for _, n := range new(device.Stats).Counters() {
		if names[n.Name] {
			t.Errorf("got %s twice, want it once", n.Name)
		}
		names[n.Name] = true
	}
	for _, n := range mlx5Names {
		if !names[n] {
			t.Errorf("got no counter %s, want one", n)
		}
	}
}

// TestSumOfShards: a device's counters are the sums of its shards', those of histograms, too.
func TestSumOfShards(t *testing.T) {
	var sum, shard engine.Stats
	shard.SentPkts, shard.RTT.Sum, shard.RTT.Buckets[3], shard.Link.TxBytes = 1, 2, 3, 4
	device.AddStats(&sum, &shard)
	device.AddStats(&sum, &shard)
	var want engine.Stats
	want.SentPkts, want.RTT.Sum, want.RTT.Buckets[3], want.Link.TxBytes = 2, 4, 6, 8
	if sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}
