// Package qp is the InfiniBand transport: queue pairs as pure state machines.
//
// A [QP] has no goroutine, lock, clock or random number of its own. Its owner
// (a shard of package engine, a test, a script) hands it inputs and the time, and
// then carries out its [Effects]:
//
//	input                                      what it brings
//	Modify, SetFlow                            a verb
//	Doorbell                                   requests in the send ring
//	HandlePackets, HandleAlike, HandleDatagram packets from the wire
//	HandleTimeout                              the time of Deadline
//	Placed, Fetched                            the answer to a placement, to a fetch
//	NextPackets, then Sent                     the chance to send
//
// Inputs only change state. NextPackets alone builds packets, and gives up when
// there is nothing to say; Sent tells the QP that they were copied. Completions go to
// the [CQ]s at once. The same inputs at the same times give the same packets.
//
// What QPs of several owners write to, a [CQ] or an [SRQ], takes a lock of the
// owners' around each access if it was given one. That is the only one in this
// package, nothing waits while it is held, and with one owner there is none. [Due]
// tells each owner what its inputs have caused.
//
// # The way of a request
//
// The application pushes a request into the send ring (package ring). Doorbell
// copies it out, once, into a slot of the requester (requester.go, sendwqe.go).
// NextPackets begins the message when its turn comes: local memory is resolved,
// PSNs are assigned, packets are built one by one. The window (window.go) holds
// the PSNs in flight. The [Flow] (flow.go) caps what is in flight to one
// destination, all QPs together; the pacer (pacer.go) spaces one QP's packets.
//
// At the peer the responder (responder.go) takes packets in PSN order, places
// data at once into direct memory, and owes an answer: an ACK, a NAK, or the
// responses of a READ or atomic, kept as resources (resources.go) so that they
// can be repeated. respond.go turns what is owed into packets. Memory that only
// somebody else can write makes placements (late.go); what depends on them waits
// as a commit (commit.go).
//
// Back home the completer (completer.go) moves the window, refills the retry
// budgets and completes requests in order. Losses show as a NAK, as a response
// beyond a missing one, or as the end of the ACK timeout; gobackn.go decides what
// is sent again, marks it in the window, and NextPackets sends it. After a silence
// of a few round trips a probe (probe.go) asks for the answer that is missing.
//
// # Memory that is not direct
//
// What only somebody else can touch, since it may take for ever, is never waited for.
// Arriving data makes placements: ACK, NAK and completion wait until Placed, as commits.
// Data to be sent makes fetches (fetch.go): NextPackets stops in front of a packet
// whose payload is not there, as it does for the pacer, and asks for the chunk of the
// message that it lies in, and for those behind it, also of the next messages. The
// owner reads them into staging memory of the QP, a fixed number of chunks for requests
// and as many for READ responses, and says Fetched. Packets then name bytes of a chunk.
// A chunk is overwritten when it was not asked for the longest: a packet that is sent
// again after that is fetched again, which is the same to the peer, as the application
// leaves the memory alone until the request is complete. Memory that cannot be read
// fails the request with WCLocProtErr, or refuses the peer's READ with a NAK for remote
// access.
//
// # Services
//
// What has been said is the way of a reliable connection (RC). The others are
// parts of it: services (service.go) is the table of what each QP type takes. XRC
// divides the QP into an initiator, which only sends, and a target, which only
// answers and takes receives from the SRQ that a request names. UC and UD have no
// way back: a request is complete when Sent says that it has left, and what
// arrives unwanted is dropped (unreliable.go).
//
// # Where to find a rule
//
//	what each service takes              service.go
//	states, and what each takes          rules.go
//	posting, in any process              front.go
//	attributes of each transition        attr.go, modify.go
//	segmentation, opcodes                sendwqe.go
//	PSNs in flight                       window.go
//	retransmission policy                gobackn.go
//	tail probe, round trips              probe.go
//	header prediction, trains            predict.go
//	ACK, NAK, RNR NAK, implied NAK       completer.go
//	requests, access rights, duplicates  responder.go
//	atomics, ATOMIC WRITE, FLUSH         single.go
//	READ and atomic repetition           resources.go
//	UC and UD                            unreliable.go
//	memory that is not direct            late.go, commit.go, fetch.go
//	completion queues                    cq.go
//	shared receive queues, XRC           srq.go
//	address handles                      ah.go
//	ACK coalescing, credits              respond.go
//	what the owner has to do             effects.go
//	what arrived, what was repeated      progress.go
//	timers                               timers.go
//	flush                                modify.go
//
// testdata holds a script for each rule of the protocol, which is a test and a
// lesson at once: see package script, and "goroced explain".
//
// Clauses are those of the InfiniBand Architecture Specification, volume 1
// (IBTA). Where Linux's rdma_rxe differs, the code says so.
package qp
