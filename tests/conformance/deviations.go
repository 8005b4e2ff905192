package conformance

import "github.com/goroce/goroce/ib"

// Kinds: the kernels of the lab, and all; the libraries of package roce/daemon/dropin.
const (
	rxe    = "rdma_rxe/**"
	rxe61  = "rdma_rxe/6.1/*"
	rxe612 = "rdma_rxe/6.12/*"

	rxeIPv6 = "rdma_rxe/*/IPv6"

	dropin = "dropin/*"
)

// Deviations are those of Linux's rdma_rxe, and of a daemon's device by our libibverbs, as package rnic shows them.
// Files are in drivers/infiniband/sw/rxe unless another directory is named.
var Deviations = []Deviation{
	// Local keys.
	{rxe61, Active, "keys/local/send/*", Status(ib.WCLocProtErr, ib.WCLocQPOpErr), localKey},
	{rxe61, Active, "keys/local/write/*", Status(ib.WCLocProtErr, ib.WCLocQPOpErr), localKey},
	{rxe61, Active, "keys/second-piece", Status(ib.WCLocProtErr, ib.WCLocQPOpErr), localKey},
	{rxe612, Active, "keys/second-piece", Status(ib.WCLocProtErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Active, "keys/local/send/*", Status(ib.WCLocProtErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Active, "keys/local/write/*", Status(ib.WCLocProtErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Active, "bounds/local/send/*", Status(ib.WCLocProtErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Active, "bounds/local/write/*", Status(ib.WCLocProtErr, ib.WCWRFlushErr), allFlushed},
	{rxe, Active, "flush-error/behind-a-failure", Skip(),
		"requests before a local failure that are not acknowledged yet are flushed with it (6.12), or nothing more " +
			"completes (6.1, now and then)"},
	{rxe, Passive, "keys/local/receive/*", Status(ib.WCLocProtErr, ib.WCLocQPOpErr), receiveKey},
	{rxe, Passive, "bounds/local/receive/*", Status(ib.WCLocProtErr, ib.WCLocQPOpErr), receiveKey},
	{rxe, Passive, "access/receives-need-local-write", Status(ib.WCLocProtErr, ib.WCLocQPOpErr), receiveKey},
	{rxe, Passive, "keys/remote/write-imm/*", Status(ib.WCWRFlushErr, ib.WCRemAccessErr), immReceive},
	{rxe, Passive, "bounds/remote/write-imm/*", Status(ib.WCWRFlushErr, ib.WCRemAccessErr), immReceive},
	{rxe, Passive, "access/region-lacks/write-imm", Status(ib.WCWRFlushErr, ib.WCRemAccessErr), immReceive},

	// States.
	{rxe, Alone, "flush-error/posted-in-error/receive", Skip(),
		"receives are posted without the kernel (providers/rxe post_recv), which does not look for them in ERR: they " +
			"are never flushed"},
	{rxe, Active, "sqd/finishes-what-it-began", Skip(),
		"in SQD a message that waits for a receive is not sent again (rxe_req.c req_next_wqe): the queue never drains"},
	{rxe, Alone, "states/current-state-must-agree", Fails("succeeded"),
		"cur_qp_state is believed (rxe_qp.c rxe_qp_chk_attr)"},
	{rxe61, Alone, "states/query-returns-the-current-state", Fails("current state RESET"),
		"cur_qp_state is never set (rxe_qp.c)"},
	{rxe61, Active, "uc/failure-stops-only-the-send-queue", Fails("local QP operation error"), noSQE},
	{rxe612, Active, "uc/failure-stops-only-the-send-queue", Fails("Work Request Flushed Error"), noSQE},

	// Datagrams.
	{rxe61, Active, "ud/failure-stops-only-the-send-queue", Fails("local QP operation error"), noSQE},
	{rxe612, Active, "ud/failure-stops-only-the-send-queue", Fails("Work Request Flushed Error"), noSQE},
	{rxe61, Passive, "ud/silent/receive-too-short", Fails("local QP operation error"),
		"the receive fails (rxe_resp.c send_data_in)"},
	{rxe, Active, "ud/longer-than-the-mtu", Status(ib.WCLocLenErr, ib.WCSuccess),
		"what is longer than the MTU is not sent, and succeeds (rxe_req.c)"},
	{rxe, Passive, "multicast/*", Skip(),
		"the interface does not join the IP group (rxe_mcast.c sets a MAC filter, for IPv4 the wrong one), so the IP " +
			"layer drops what comes"},

	// Shared receive queues.
	{rxe, Alone, "srq/limit-above-what-is-there", NoEvent(ib.EventSRQLimit),
		"the limit is looked at when a receive is taken (rxe_resp.c get_srq_wqe)"},
	{rxe, Alone, "srq/resize-below-what-is-there", Fails("does not name the attribute"),
		"the kernel says EINVAL for any reason (rxe_srq.c)"},
	{rxe61, Passive, "srq/last-receive-of-a-queue-pair", NoEvent(ib.EventLastWQE), lastWQE},
	{rxe61, Passive, "srq/a-queue-pair-ends-the-others-go-on", NoEvent(ib.EventLastWQE), lastWQE},
	{rxe, Passive, "srq/pd-is-that-of-the-srq", Fails("local QP operation error"), srqPD},
	{rxe, Passive, "srq/pd-is-not-that-of-the-queue-pair", Fails("success"), srqPD},

	// Windows.
	{rxe, Passive, "window/*/one-byte-over", Fails("success"), windowBounds},
	{rxe, Passive, "window/*/one-byte-before", Fails("success"), windowBounds},
	{rxe, Passive, "window/type-2/zero-based-ends-where-it-ends", Fails("success"), windowBounds},
	{rxe, Alone, "window/*/bind/address-wraps", Fails("success"),
		"the end is computed without a look at overflow (rxe_mw.c rxe_check_bind_mw)"},
	{rxe612, Alone, "window/*/bind/region-lacks-bind-windows", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Alone, "window/*/bind/*-needs-local-write", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Alone, "window/*/bind/one-byte-*", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Alone, "window/type-2/not-bound-twice", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe612, Alone, "window/type-2/length-0", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe61, Alone, "invalidate/local/unknown-key", Status(ib.WCMWBindErr, ib.WCLocQPOpErr), localInv},
	{rxe612, Alone, "invalidate/local/unknown-key", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe61, Alone, "invalidate/local/region-without-the-right", Status(ib.WCMWBindErr, ib.WCLocQPOpErr), localInv},
	{rxe612, Alone, "invalidate/local/region-without-the-right", Status(ib.WCMWBindErr, ib.WCWRFlushErr), allFlushed},
	{rxe, Passive, "invalidate/*/region", Fails("no RemoteInvalidate"), noInvalidate},
	{rxe, Passive, "invalidate/by-send/region-without-the-right", Fails("success"), lateInvalidate},
	{rxe, Passive, "invalidate/by-send/unknown-key", Fails("success"), lateInvalidate},
	{rxe, Passive, "invalidate/by-send/window-of-another-queue-pair", Fails("success"),
		"the queue pair is not compared (rxe_mw.c rxe_check_invalidate_mw)"},
	{rxe, Alone, "invalidate/local/window-of-another-queue-pair", Fails("success"),
		"the queue pair is not compared (rxe_mw.c rxe_check_invalidate_mw)"},
	{rxe, Alone, "invalidate/local/window-that-is-free", Skip(),
		"the kernel crashes: rxe_do_invalidate_mw (rxe_mw.c) drops what a free window does not have"},

	// Reregistration.
	{rxe, Passive, "rereg/rights/*", Fails("not supported"), noRereg},
	{rxe, Passive, "rereg/old-key-dies", Fails("not supported"), noRereg},
	{rxe, Passive, "rereg/pd/*", Fails("not supported"), noRereg},
	{rxe, Alone, "rereg/pd/*", Fails("not supported"), noRereg},
	{rxe, Alone, "rereg/bound-to-windows", Fails("not supported"), noRereg},

	// Events.
	{rxe, Alone, "cq/overrun-ends-the-queue-pair", NoEvent(ib.EventQPFatal), noEvents},
	{rxe, Alone, "cq/overrun-ends-the-queue-pair", Fails("the QP is in RTS"),
		"completions that find the CQ full are lost, and the queue pair goes on (rxe_cq.c rxe_cq_post)"},
	{rxe, Alone, "solicited/failure-counts", Skip(),
		"only the peer's bit counts (rxe_cq.c rxe_cq_post): the event never comes"},
	{rxe, Passive, "events/access-error/*", NoEvent(ib.EventQPAccessErr), noEvents},
	{rxe, Passive, "events/request-error/*", NoEvent(ib.EventQPReqErr), noEvents},
	{rxe, Passive, "events/communication-established", NoEvent(ib.EventCommEst), noEvents},

	// The connection manager: librdmacm, and in drivers/infiniband/core ucma.c, cma.c and cm.c.
	{rxe, "", "cm/connect/uc", Fails("the only one that librdmacm has"), ucNeedsType},
	{rxe, Passive, "cm/reject/every-reason", Fails("rdma_ucm sends no other"), rejReasons},
	{rxe, Passive, "cm/reject/reason-timeout", Fails("rdma_ucm sends no other"), rejReasons},
	{rxe, Active, "cm/reject/reason-timeout", Skip(),
		"reason 4 is looked up by the sender's GUID and communication ID, which a REJ of a REQ " +
			"does not have (cm.c cm_acquire_rejected_id): the kernel goes on asking"},
	{rxe, Passive, "cm/timeout/no-answer", Skip(), takenBack},
	{rxe, Active, "cm/timeout/tells-how-often-it-asked", Fails("asked 0 times"), howOften},
	{rxe, Passive, "cm/ud/q-key", Fails("rdma_ucm sends no other"), ipQKey},
	{rxeIPv6, Alone, "cm/multicast/join", Fails("not supported"), groupsIPv6},
	{rxeIPv6, Passive, "cm/multicast/datagrams", Fails("not supported"), groupsIPv6},

	// Programs in C over a daemon.
	{dropin, Alone, "srq/resize-below-what-is-there", Fails("does not name the attribute"),
		"verbs have an errno only, EINVAL"},
	{dropin, Passive, "invalidate/*/region", Fails("no RemoteInvalidate"), noInvalidate},
	{dropin, Passive, "rereg/old-key-dies", Fails("the key is still"),
		"ibv_rereg_mr keeps the keys, which programs have told their peers (dropin/verbs/memory.c)"},
	{dropin, "", "cm/connect/uc", Fails("the only one that librdmacm has"), ucNeedsType},
	{dropin, Passive, "cm/reject/every-reason", Fails("rdma_ucm sends no other"), rejReasons},
	{dropin, Passive, "cm/reject/reason-timeout", Fails("rdma_ucm sends no other"), rejReasons},
	{dropin, Passive, "cm/timeout/no-answer", Skip(), takenBack},
	{dropin, Active, "cm/timeout/tells-how-often-it-asked", Fails("asked 0 times"), howOften},
	{dropin, Passive, "cm/ud/q-key", Fails("rdma_ucm sends no other"), ipQKey},
}

// Reasons of several rows.
const (
	allFlushed = "a local failure moves the queue pair to ERR before it is reported, and is flushed like all " +
		"others (rxe_req.c)"
	localKey   = "a bad L_Key of a request fails in the requester's own way (rxe_req.c)"
	receiveKey = "a bad L_Key of a receive is a malformed WQE (rxe_resp.c RESPST_ERR_MALFORMED_WQE)"
	immReceive = "the receive of a WRITE with immediate is taken before the key is looked at, and fails with it " +
		"(rxe_resp.c check_resource)"
	noSQE        = "there is no SQE: the queue pair goes to ERR (rxe_req.c)"
	lastWQE      = "the event is raised only by a responder that has something to do (rxe_resp.c rxe_drain_req_pkts)"
	srqPD        = "receives of an SRQ are checked against the queue pair's PD (rxe_resp.c, copy_data with qp->pd)"
	localInv     = "a local invalidation that fails is an operation error (rxe_req.c rxe_do_local_ops)"
	noInvalidate = "regions of the C verbs cannot be invalidated (package rnic)"
	// rxe_resp.c checks the key when it completes the receive, after the ACK.
	lateInvalidate = "the message is acknowledged before its key is looked at (rxe_resp.c RESPST_ERR_INVALIDATE_RKEY)"
	noRereg        = "the provider has no rereg_mr (providers/rxe rxe.c); the kernel has it since 6.3"
	noEvents       = "the kernel never raises it (rxe_qp.c, rxe_resp.c)"
	rejReasons     = "a REJ of user space has reason 28 or 35 (ucma.c ucma_reject)"
	ucNeedsType    = "rdma_create_id takes no type: ports of TCP are for RC (ucma.c ucma_get_qp_type)"
	takenBack      = "nobody hears that a request was taken back which is not accepted yet (ucma.c ucma_event_handler)"
	howOften       = "events of rdma_cm do not tell how often the kernel has asked"
	ipQKey         = "the Q_Key is the default one with IP addresses (ucma.c ucma_copy_conn_param)"
	groupsIPv6     = "groups of RoCEv2 over IPv6 cannot be joined (cma.c cma_iboe_join_multicast)"
	windowBounds   = "accesses are bounded by the region, not by the window (rxe_resp.c check_rkey)"
)
