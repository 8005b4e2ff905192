package qp

import "github.com/goroce/goroce/ib"

// Traffic counts what one QP has sent and received since it was made. The engine counts the bytes, as it makes the
// frames: from the BTH to the ICRC of each packet. Only the owner of the shard reads and writes it.
type Traffic struct {
	SentBytes    uint64
	RcvdBytes    uint64
	SentMessages uint64 // requests that have completed without an error
	RcvdMessages uint64 // requests that were carried out. A WRITE may arrive as several, see Config.Trains
	ResentPkts   uint64 // packets that were sent again, or answer a duplicate request
	ResentBytes  uint64 // of these, from the BTH to the ICRC
	SpuriousPkts uint64 // of these, those that were sent again in vain, as far as it is known: see resent
	SentRNR      uint64 // RNR NAKs
	RcvdRNR      uint64
}

// Traffic returns the counters of the QP, which the engine adds to.
func (q *QP) Traffic() *Traffic { return &q.kept().traffic }

// Counted returns the counters of the QP.
func (q *QP) Counted() Traffic {
	if q.history == nil {
		return Traffic{}
	}
	return q.history.traffic
}

// Stats holds the counters of the QPs of a shard. The names in the comments are those of
// rdma_rxe's hw_counters, where it has them (rxe_hw_counters.c). Only the owner of the
// shard reads and writes them.
type Stats struct {
	SentPkts          uint64 // sent_pkts
	RcvdPkts          uint64 // rcvd_pkts
	DuplicateRequest  uint64 // duplicate_request: requests the responder had seen
	OutOfSeqRequest   uint64 // out_of_seq_request: gaps the responder saw
	RcvdRNRErr        uint64 // rcvd_rnr_err: RNR NAKs received
	SendRNRErr        uint64 // send_rnr_err: RNR NAKs sent
	RcvdSeqErr        uint64 // rcvd_seq_err: PSN sequence NAKs received
	AckDeferred       uint64 // ack_deferred: ACKs that waited and were merged
	RetryExceeded     uint64 // retry_exceeded_err
	RNRRetryExceeded  uint64 // retry_rnr_exceeded_err
	CompleterRetry    uint64 // completer_retry_err: recoveries begun, of any cause
	LinkDowned        uint64 // link_downed
	RDMASends         uint64 // rdma_sends: SEND messages completed by the requester
	RDMARecvs         uint64 // rdma_recvs: SEND messages received whole
	LocalAckTimeout   uint64 // local_ack_timeout_err (mlx5)
	SpuriousTimeout   uint64 // of these, those that ended before the peer could have answered: nothing was lost
	ResentPkts        uint64 // packets that were sent again, or answer a duplicate request; the engine counts them
	ResentBytes       uint64 // of these, from the BTH to the ICRC
	SpuriousPkts      uint64 // requests that were sent again in vain, as far as it is known: see resent
	TailProbes        uint64 // tail probes; see probe.go
	ImpliedNAK        uint64 // implied_nak_seq_err (mlx5)
	ECNMarked         uint64 // np_ecn_marked_roce_packets (mlx5): packets that have met congestion
	SentCNPs          uint64 // np_cnp_sent (mlx5)
	RcvdCNPs          uint64 // rp_cnp_handled (mlx5)
	DuplicateResponse uint64 // responses whose PSN was acknowledged before
	GhostResponse     uint64 // responses that no request in flight expects
	DropState         uint64 // packets that the QP's state does not accept
	DropQKey          uint64 // datagrams with another Q_Key
	DropMessage       uint64 // dropped UC and UD messages: no receive, too long, no access right
	DropNoResource    uint64 // packets dropped because there was no room for placements
	KeptRequests      uint64 // requests beyond a gap that were kept; see reorder.go
	SentSACKs         uint64 // sack.go
	RcvdSACKs         uint64
	KeptUsed          uint64 // of these, those that were executed

	// Those of mlx5's hw_counters that have no other name above (mlx5/counters.c).
	ReqCQEError      uint64 // req_cqe_error: send requests that completed with an error, flushed ones among them
	ReqCQEFlush      uint64 // req_cqe_flush_error
	ReqRemoteAccess  uint64 // req_remote_access_errors: of ReqCQEError, by a NAK for remote access
	ReqRemoteInvalid uint64 // req_remote_invalid_request: of ReqCQEError, by a NAK for an invalid request
	RespCQEError     uint64 // resp_cqe_error: receives that completed with an error, flushed ones among them
	RespCQEFlush     uint64 // resp_cqe_flush_error
	RespLocalLength  uint64 // resp_local_length_error: of RespCQEError, for messages longer than their receive
	RespRemoteAccess uint64 // resp_remote_access_errors: requests refused with a NAK for remote access
	OutOfBuffer      uint64 // out_of_buffer: packets for which no receive was posted
	OutOfSequence    uint64 // out_of_sequence: requests beyond the expected PSN, each of them
	RxReads          uint64 // rx_read_requests
	RxWrites         uint64 // rx_write_requests
	RxAtomics        uint64 // rx_atomic_requests: CAS and FAA

	// CompletionLatency has the time from when a request was taken from its send queue to its completion, of signaled
	// requests of reliable services that have succeeded.
	CompletionLatency Histogram
	// RTT has round trips to the peers, with their delay of ACKs: of packets that were sent once, one at a time for
	// each QP.
	RTT Histogram
}

// countError counts a completion with an error.
func (s *Stats) countError(wc *ib.WC) {
	all, flushed := &s.ReqCQEError, &s.ReqCQEFlush
	recv := wc.Opcode == ib.WCRecv || wc.Opcode == ib.WCRecvImm
	if recv {
		all, flushed = &s.RespCQEError, &s.RespCQEFlush
	}
	*all++
	switch {
	case wc.Status == ib.WCWRFlushErr:
		*flushed++
	case wc.Status == ib.WCRemAccessErr:
		s.ReqRemoteAccess++
	case wc.Status == ib.WCRemInvReqErr:
		s.ReqRemoteInvalid++
	case wc.Status == ib.WCLocLenErr && recv:
		s.RespLocalLength++
	}
}
