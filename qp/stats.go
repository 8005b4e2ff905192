package qp

// Stats counts what the QPs of a shard did. The names are those of rdma_rxe's
// hw_counters, where it has them (rxe_hw_counters.c); the owner of the shard
// reads and writes them.
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
	TailProbes        uint64 // answers that were asked for; see probe.go
	ImpliedNAK        uint64 // implied_nak_seq_err (mlx5)
	DuplicateResponse uint64 // responses to what was acknowledged before
	GhostResponse     uint64 // responses to what was never asked
	DropState         uint64 // packets that the QP's state does not take
	DropQKey          uint64 // datagrams with another Q_Key
	DropMessage       uint64 // UC and UD messages that were not wanted: no receive, no room, no right
	DropNoResource    uint64 // requests dropped for want of room for placements
}
