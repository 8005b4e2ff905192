package device

import (
	"reflect"

	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/internal/engine"
)

// Stats counts what a device did since it was opened.
type Stats struct {
	engine.Stats        // of all shards
	EventsLost   uint64 // asynchronous events that were lost because the event queue was full
	OffloadOff   uint64 // destinations for which runs are given up at present
}

// Stats returns the current counters, summed over all shards.
func (d *Device) Stats() Stats {
	var sum Stats
	d.engine.Each(func(s *engine.Shard) {
		// One shard at a time, between two of its turns: the sum is not of one moment.
		st := s.Stats()
		add(reflect.ValueOf(&sum.Stats).Elem(), reflect.ValueOf(&st).Elem())
	})
	sum.LinkDowned, sum.EventsLost = d.linkDowned.Load(), d.eventsLost.Load()
	sum.OffloadOff = uint64(len(d.OffloadOff()))
	return sum
}

// add adds the counters of v to those of sum. Of strings it keeps the first that is not empty.
func add(sum, v reflect.Value) {
	for i := range v.NumField() {
		// By reflection, so that no counter can be forgotten here.
		switch to, from := sum.Field(i), v.Field(i); from.Kind() {
		case reflect.Struct:
			add(to, from)
		case reflect.Array:
			for j := range from.Len() {
				to.Index(j).SetUint(to.Index(j).Uint() + from.Index(j).Uint())
			}
		case reflect.Uint64:
			to.SetUint(to.Uint() + from.Uint())
		case reflect.String:
			if to.Len() == 0 {
				to.SetString(from.String())
			}
		}
	}
}

// Histogram counts durations.
type Histogram = qp.Histogram

// HistogramBounds is how many bounds a Histogram has.
const HistogramBounds = qp.HistogramBounds

// Counter is a named counter.
type Counter struct {
	Name  string
	Value uint64
}

// Counters lists the counters under the names of rdma_rxe's hw_counters, in its
// order, followed by those that rdma_rxe lacks, and those that mlx5 has under names of its own:
// what counts the same event has the same value.
func (s *Stats) Counters() []Counter {
	return []Counter{
		{"sent_pkts", s.SentPkts}, {"rcvd_pkts", s.RcvdPkts}, {"duplicate_request", s.DuplicateRequest},
		{"out_of_seq_request", s.OutOfSeqRequest}, {"rcvd_rnr_err", s.RcvdRNRErr}, {"send_rnr_err", s.SendRNRErr},
		{"rcvd_seq_err", s.RcvdSeqErr}, {"ack_deferred", s.AckDeferred}, {"retry_exceeded_err", s.RetryExceeded},
		{"retry_rnr_exceeded_err", s.RNRRetryExceeded}, {"completer_retry_err", s.CompleterRetry},
		{"send_err", s.Link.TxErrors}, {"link_downed", s.LinkDowned}, {"rdma_sends", s.RDMASends},
		{"rdma_recvs", s.RDMARecvs},

		{"local_ack_timeout_err", s.LocalAckTimeout}, {"spurious_timeouts", s.SpuriousTimeout},
		{"tail_probes", s.TailProbes}, {"resent_pkts", s.ResentPkts}, {"resent_bytes", s.ResentBytes},
		{"spurious_pkts", s.SpuriousPkts},
		{"implied_nak_seq_err", s.ImpliedNAK},
		{"duplicate_response", s.DuplicateResponse}, {"ghost_response", s.GhostResponse},
		{"rx_icrc_errors", s.RxICRCErrors}, {"drop_malformed", s.DropMalformed}, {"drop_no_qp", s.DropNoQP},
		{"drop_service", s.DropService}, {"drop_pkey", s.DropPKey}, {"drop_address", s.DropAddress},
		{"drop_state", s.DropState}, {"drop_qkey", s.DropQKey}, {"drop_message", s.DropMessage},
		{"drop_no_resource", s.DropNoResource}, {"kept_requests", s.KeptRequests}, {"kept_used", s.KeptUsed},
		{"sent_sacks", s.SentSACKs}, {"rcvd_sacks", s.RcvdSACKs},
		{"drop_link", s.Link.RxDropped},
		{"rx_overflow", s.Link.RxOverflow}, {"crossed_shards", s.CrossedShards}, {"drop_mailbox", s.DropMailbox},
		{"events_lost", s.EventsLost}, {"drop_forged_mad", s.DropForgedMAD},
		{"offload_trials", s.OffloadTrials}, {"offload_off", s.OffloadOff}, {"drop_forged_source", s.Link.RxForged},
		{"drop_source_port", s.DropSourcePort}, {"np_ecn_marked_roce_packets", s.ECNMarked},
		{"np_cnp_sent", s.SentCNPs}, {"rp_cnp_handled", s.RcvdCNPs},

		{"rx_write_requests", s.RxWrites}, {"rx_read_requests", s.RxReads}, {"rx_atomic_requests", s.RxAtomics},
		{"out_of_buffer", s.OutOfBuffer}, {"out_of_sequence", s.OutOfSequence},
		{"packet_seq_err", s.RcvdSeqErr}, {"rnr_nak_retry_err", s.RcvdRNRErr},
		{"resp_local_length_error", s.RespLocalLength}, {"resp_cqe_error", s.RespCQEError},
		{"req_cqe_error", s.ReqCQEError}, {"req_remote_invalid_request", s.ReqRemoteInvalid},
		{"req_remote_access_errors", s.ReqRemoteAccess}, {"resp_remote_access_errors", s.RespRemoteAccess},
		{"resp_cqe_flush_error", s.RespCQEFlush}, {"req_cqe_flush_error", s.ReqCQEFlush},
		{"req_transport_retries_exceeded", s.RetryExceeded}, {"req_rnr_retries_exceeded", s.RNRRetryExceeded},
		{"rx_icrc_encapsulated", s.RxICRCErrors},
	}
}

// PortCounters lists what the device has counted under the names of IBTA 16.1.3.5, which are those of
// the files in sysfs. Data are words of 4 bytes.
func (s *Stats) PortCounters() []Counter {
	return []Counter{
		{"port_xmit_data", s.Link.TxBytes / 4}, {"port_rcv_data", s.Link.RxBytes / 4},
		{"port_xmit_packets", s.Link.TxFrames}, {"port_rcv_packets", s.Link.RxFrames},
		{"port_xmit_discards", s.Link.TxErrors},
		{"port_rcv_errors", s.RxICRCErrors + s.DropMalformed + s.Link.RxDropped},
		{"excessive_buffer_overrun_errors", s.Link.RxOverflow}, {"link_downed", s.LinkDowned},
	}
}
