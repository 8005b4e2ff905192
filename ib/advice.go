package ib

// advice is what to look at next, by reason. docs/failures.md has the same.
var advice = [...]string{
	ReasonKey:           "the peer knows another key than the one that this end has made",
	ReasonKeyEnded:      "the peer uses the memory after it was deregistered, or its key was invalidated",
	ReasonPD:            "register the memory in the PD of the QP (for an SRQ, in that of the SRQ)",
	ReasonWindowQP:      "a window of type 2 is for the QP that it was bound on",
	ReasonAccess:        "register the memory with the right; remote write and atomics need local write, too",
	ReasonBounds:        "the sentence says how many bytes too far",
	ReasonBind:          "docs of `ibv_bind_mw` and of `ib.MWBind`",
	ReasonUnreadable:    "keep the mapping, and the process, until requests have completed",
	ReasonQPAccess:      "set `qp_access_flags` at INIT",
	ReasonAlignment:     "atomics need addresses that are multiples of 8",
	ReasonSequence:      "both ends need the same path MTU",
	ReasonTooLong:       "post larger receives",
	ReasonReads:         "`max_dest_rd_atomic` here is less than `max_rd_atomic` there",
	ReasonNoReceive:     "post receives before the peer sends",
	ReasonOpcode:        "the table of services in docs/verbs.md",
	ReasonRequestLength: "atomics have 8 bytes, datagrams at most a path MTU, messages 2 GiB",
	ReasonNoReads:       "set `max_rd_atomic` at RTS",
	ReasonSilence: "is the peer's QP in RTR or RTS, with this one as its peer? does UDP port 4791 pass both " +
		"ways?",
	ReasonLoss:         "is there loss on the way? `retry_cnt` and `timeout` say how much is survived",
	ReasonUnreachable:  "the sentence says what ICMP says",
	ReasonPeerNotReady: "post receives there, or `rnr_retry` 7",
	ReasonPeerInvalid:  "ask its side: `goroced why` there",
	ReasonPeerAccess:   "ask its side: `goroced why` there",
	ReasonPeerFailed:   "ask its side: `goroced why` there",
	ReasonCQOverrun:    "poll more often, or make the CQ as large as all queues that use it",
	ReasonRing:         "a program has written to the rings, or the memory is gone",
	ReasonFrame: "`path_mtu` at RTR: `active_mtu` of the port, at both ends; or an MTU of the interfaces of 4192 " +
		"for 4096",
	ReasonModified: "not a failure; flushed requests have it",
}

// Advice says what to look at when a QP has failed for the reason; "" if there is nothing to say but the reason. It
// names attributes as libibverbs does.
func (r Reason) Advice() string {
	if int(r) >= len(advice) {
		return ""
	}
	return advice[r]
}
