// Package qp is the InfiniBand transport: queue pairs as pure state machines. Its API is not stable.
//
// A [QP] has no goroutine, lock, clock or random number of its own. Its owner
// (a shard of package engine, a test, a script) hands it inputs and the time, and
// then carries out its [Effects]:
//
//	input                                      when the owner calls it
//	Modify, SetFlow                            a verb changes the QP
//	Doorbell                                   the rings hold new requests
//	HandlePackets, HandleAlike, HandleDatagram packets have arrived
//	HandleTimeout                              Deadline has passed
//	Placed, Fetched                            a placement or a fetch has ended
//	NextPackets, then Sent                     the link can take packets
//
// Inputs only change state. Packets are built by NextPackets (and LastACK); it returns
// fewer than asked for when there are no more. Sent tells the QP that they were copied.
// Completions go to the [CQ]s at once. The same inputs at the same times give the same
// packets.
//
// A [CQ] or [SRQ] that QPs of several owners use is created with a lock, which each
// access takes. It is the only lock in this package, nothing blocks while it is held,
// and with one owner there is none. [Due] lists for each owner the CQs and SRQs that
// have events because of its inputs.
//
// # The path of a request
//
// The application pushes a request into the send ring (package ring), and Doorbell tells
// the QP. NextPackets copies it out, once, into a slot of the requester (requester.go,
// sendwqe.go), and begins the message when those before it are sent: it resolves local
// memory, assigns PSNs and builds packets one by one. The window (window.go) holds
// the PSNs in flight. The [Flow] (flow.go) caps what is in flight to one
// destination, all QPs together; the pacer (pacer.go) spaces one QP's trains.
//
// Packets that are alike leave as a train (train.go): one TxPacket with what the first of them
// needs, which the owner continues by PutTrain. Of a long message these are the packets in its
// middle. Of short WRITEs to one region, from one region or inline, and equally long, each is a
// message that asks for an ACK of its own: window, Flow and pace are asked once for all of
// them, and a message is checked only in what may differ (sendWQE.beginLike). At the peer
// HandleAlike checks such a run once and places it in a loop.
//
// At the peer the responder (responder.go) takes packets in PSN order, writes data to direct
// memory at once, and records which answer is pending: an ACK, a NAK, or the responses of a
// READ or atomic, kept as resources (resources.go) so that they can be repeated. READ responses
// leave at once, or spaced if bursts of them are lost (respondpace.go). Requests
// beyond the expected PSN are kept, and stand in for their repetition if that is lost
// (responder.beyond, gap.go; reorder.go). Another device of this project is also told which
// have arrived (SACK, sack.go). respond.go builds the packets of pending answers. For memory
// that only the owner's worker can write, the responder makes placements (late.go); ACKs and
// completions that depend on them wait in a queue of commits (commit.go).
//
// At the requester the completer (completer.go) moves the window and completes requests in
// order. Responses to READs and atomics are taken in any order, and those that are missing
// are asked for by themselves (selective.go). For the rest the completer tells the
// retransmission policy (goBackN, gobackn.go) what was answered, and what is lost by a NAK
// or by the end of the ACK timeout; where the peer sends SACKs they tell what is lost, and
// only that goes again. The policy counts retries, and marks in the window which PSNs are
// sent again; NextPackets sends them. The congestion control (congestion.go, cubic.go) of the Flow
// gets the same news. After a silence of a few round trips a probe (probe.go) asks for the
// missing answer.
//
// # Memory that is not direct
//
// Access to memory that is not direct may block for any time, so a QP never does it.
// It makes placements for arriving data; ACK, NAK and completion wait, as commits,
// until Placed. It makes fetches (fetch.go) for data to be sent: NextPackets stops in
// front of a packet whose payload is not fetched yet, as it does for the pacer, and asks
// for the chunk of the message that holds the payload and for the chunks behind it, also
// those of the next messages. The owner reads them into staging memory of the QP, a
// fixed number of chunks for requests and as many for READ responses, and calls Fetched.
// Packets then refer to bytes of a chunk. The least recently used chunk is overwritten
// first; if one of its packets must be sent again, it is fetched again. The peer sees no
// difference, as the application leaves the memory alone until the request is complete.
// Memory that cannot be read fails the request with WCLocProtErr, or refuses the peer's
// READ with a NAK for remote access.
//
// # Services
//
// The text above describes a reliable connection (RC). The other services are
// parts of it: services (service.go) is the table of what each QP type supports. XRC
// divides the QP into an initiator, which only sends requests, and a target, which only
// answers and takes receives from the SRQ that a request names. UC and UD have no
// acknowledgements: a request is complete once Sent was called for its last packet, and
// packets that cannot be accepted are dropped (unreliable.go).
//
// # Where to find a rule
//
//	what each service supports           service.go
//	states, and what each accepts        rules.go
//	posting, in any process              front.go
//	attributes of each transition        attr.go, modify.go
//	segmentation, opcodes                sendwqe.go
//	PSNs in flight                       window.go
//	what is in flight to a destination   flow.go
//	congestion control                   congestion.go, cubic.go, hystart.go, dcqcn.go
//	congestion notifications             cnp.go
//	which losses are congestion          gate.go
//	retransmission policy                gobackn.go
//	responses that are lost              selective.go
//	tail probe, round trips              probe.go
//	header prediction                    predict.go
//	trains                               train.go
//	ACK, NAK, RNR NAK, implied NAK       completer.go
//	requests, access rights, duplicates  responder.go
//	requests beyond a gap                gap.go, reorder.go
//	selective retransmission             sack.go
//	packets that overtake each other     rack.go, undo.go
//	atomics, ATOMIC WRITE, FLUSH         single.go
//	READ and atomic repetition           resources.go
//	READs that are repeated in parts     readagain.go
//	pace of READ responses               respondpace.go
//	UC and UD                            unreliable.go
//	memory that is not direct            late.go, commit.go, fetch.go
//	completion queues                    cq.go
//	shared receive queues, XRC           srq.go
//	address handles                      ah.go
//	ACK coalescing, credits              respond.go
//	what the owner has to do             effects.go
//	whether packets arrive               arrivals.go
//	flight recorder                      recorder.go, record.go
//	timers                               timers.go
//	flush                                flush.go
//
// testdata holds a script for each rule of the protocol, which is both a test and
// documentation: see package script, and "goroced explain".
//
// Clauses are those of the InfiniBand Architecture Specification, volume 1
// (IBTA). Where Linux's rdma_rxe differs, the code says so.
package qp
