//go:build linux

package main

// counterHelp says of each counter of a device what is counted, since the device was opened. The names are those of
// rdma_rxe's hw_counters where it has the counter, then those of mlx5's. docs/counters.md has the same.
var counterHelp = map[string]string{
	"sent_pkts": "Packets sent.",
	"rcvd_pkts": "Packets received that were for a queue pair and fitted it.",

	"duplicate_request":      "Requests received again that had been answered: their answer was lost or late.",
	"out_of_seq_request":     "Requests received after a gap: packets before them were lost or overtaken.",
	"rcvd_rnr_err":           "RNR NAKs received: the peer had no receive posted.",
	"send_rnr_err":           "RNR NAKs sent: a queue pair here had no receive posted.",
	"rcvd_seq_err":           "NAKs received that told of a gap: packets to the peer were lost.",
	"ack_deferred":           "ACKs that waited and were sent as one with a later one.",
	"retry_exceeded_err":     "Queue pairs that gave up: a request was not answered, however often it was sent.",
	"retry_rnr_exceeded_err": "Queue pairs that gave up: the peer had no receive posted for too long.",
	"completer_retry_err":    "Times that a requester began to send again, for whatever reason.",
	"send_err":               "Packets that the kernel refused to send.",
	"link_downed":            "Times that the port went down.",
	"rdma_sends":             "SEND messages that were sent and acknowledged.",
	"rdma_recvs":             "SEND messages that were received whole.",

	"local_ack_timeout_err": "ACK timeouts: nothing came back for a request in time.",
	"tail_probes":           "Packets sent again after a silence, to find out what was lost at the end of a flight.",
	"implied_nak_seq_err":   "Losses seen by a READ or atomic response that came before an earlier one.",
	"duplicate_response":    "Responses received again.",
	"ghost_response":        "Responses that no request in flight expects.",
	"offload_trials":        "Trials whether a destination takes packets that the NIC has cut from longer ones.",
	"offload_off":           "Destinations to which segmentation offload is given up for now.",
	"crossed_shards":        "Packets that arrived at another shard than that of their queue pair.",

	"np_ecn_marked_roce_packets": "Packets received with the ECN bits CE: a switch on their way had a long queue.",

	"rx_write_requests":  "WRITE requests carried out; a long WRITE of goroce's comes as one for each packet.",
	"rx_read_requests":   "READ requests carried out.",
	"rx_atomic_requests": "COMPARE & SWAP and FETCH & ADD requests carried out.",
	"out_of_buffer":      "Packets received for which no receive was posted.",
	"out_of_sequence":    "Requests received beyond the expected PSN, each packet of them.",
	"packet_seq_err":     "The same as rcvd_seq_err.",
	"rnr_nak_retry_err":  "The same as rcvd_rnr_err.",

	"req_cqe_error":                  "Send requests that completed with an error, those that were flushed included.",
	"req_cqe_flush_error":            "Send requests that were flushed.",
	"req_remote_access_errors":       "Send requests that failed since the peer did not allow the access.",
	"req_remote_invalid_request":     "Send requests that failed since the peer called them invalid.",
	"req_transport_retries_exceeded": "The same as retry_exceeded_err.",
	"req_rnr_retries_exceeded":       "The same as retry_rnr_exceeded_err.",
	"resp_cqe_error":                 "Receives that completed with an error, those that were flushed included.",
	"resp_cqe_flush_error":           "Receives that were flushed.",
	"resp_local_length_error":        "Receives that failed since the message was longer.",
	"resp_remote_access_errors":      "Requests refused since key, right or bounds did not allow the access.",
	"rx_icrc_encapsulated":           "The same as rx_icrc_errors.",

	"rx_icrc_errors":     "Packets received whose ICRC was wrong: damaged on the way, or changed by a middlebox.",
	"drop_malformed":     "Packets received that do not decode.",
	"drop_no_qp":         "Packets received for a queue pair that is not there.",
	"drop_service":       "Packets received that are of another service than their queue pair.",
	"drop_pkey":          "Packets received that are of another partition.",
	"drop_address":       "Packets received that are not from their queue pair's peer, or not to its address.",
	"drop_source_port":   "Packets received from another UDP port than the pinned one (pin_source_port).",
	"drop_state":         "Packets received that the state of their queue pair does not accept.",
	"drop_qkey":          "Datagrams received that have another Q_Key.",
	"drop_message":       "UC and UD messages lost at the receiver: no receive posted, too long, or no access right.",
	"drop_no_resource":   "Packets dropped because too much waited to be placed in memory.",
	"drop_link":          "Packets received whose outer headers are wrong, or which are for another address.",
	"drop_mailbox":       "Packets dropped because the shard that they are for had too many waiting.",
	"drop_forged_mad":    "Datagrams of clients to a connection manager, which they may not send: not sent.",
	"drop_forged_source": "Packets received that claim to come from an address of this device.",
	"rx_overflow":        "Packets that the kernel dropped for lack of socket buffers, as far as it tells.",
	"events_lost":        "Asynchronous events of devices lost because nobody read them.",
}
