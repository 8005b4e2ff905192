// Package engine runs the loops of the software device, which carry packets between queue pairs
// (package qp) and links (package link). Package roce builds the objects of the API on top of it.
//
// An [Engine] has a [Shard] for each link. A shard owns QPs, their timers, the congestion
// accounts (qp.Flow) of their destinations and its link. It works on them in a turn, under its
// lock, at the shard's time, which never goes back.
//
// # One turn
//
//	shard.go     advance       the time is at least that of the latest turn or verb
//	answers.go   take          results of workers on slow memory: QP.Placed, QP.Fetched
//	mailbox.go   take          runs for QPs of this shard that came by another one's link
//	receive.go   Link.Recv     a batch of runs, if the last one is done, and unless workers still
//	                           need its frames (held.go)
//	receive.go   process       frame by frame: ICRC, decode, QP, and QP.HandlePackets for packets
//	                           of one QP that follow each other; frames like the one before: ICRC,
//	                           QP.HandleAlike
//	doorbell.go  take          QPs with new requests: QP.Doorbell
//	shard.go     runTimers     QPs whose deadline has passed: QP.HandleTimeout
//	transmit.go  drain         ready QPs in their order: QP.NextPackets, headers, payload
//	                           copied into runs, QP.Sent, Link.Send
//
// After each input to a QP, and after its packets were copied, effects.go carries out the QP's
// effects (qp.Effects): it gives placements and fetches to the worker, puts the QP into the ready
// list and the heap of deadlines, and delivers events to the [Owner]. In steady state no step
// allocates.
//
// # Bounds of one turn
//
// A packet, a request or a doorbell may make much work: 60 bytes repeat a READ of gigabytes. So each
// step of a turn has a bound (bounds.go), and leaves the rest to the next turn, in its order:
//
//	results of workers   256
//	frames               128, then to the end of the run; as many from other shards. A multicast
//	                     datagram counts for each member
//	doorbells            64 QPs, the applications by turns of 8; each flushes 64 requests in ERR
//	timers               64 QPs
//	datagrams of QP 1    64, and 16 deadlines of the connection manager for each
//	sends                64 QPs and 768 KiB; 64 packets of each QP, all of them of the last one. The
//	                     applications by turns of 64 packets; within one its peers, likewise;
//	                     for a peer its QPs
//
// Sends are READ responses, retransmissions and new requests, also those that need no packet. No input
// of package qp makes more than a bounded amount of work either: a QP takes 64 requests at a time out
// of its ring, has 1,024 under way at most, and flushes 64 at a time. TestTurns of package device counts
// what a turn does under each kind of attack.
//
// # Who drives
//
// These goroutines drive a shard. Each turn of the shard is taken under its lock:
//
//   - The loop (loop.go): a goroutine for each shard. It takes turns while there is work,
//     spins for a time that follows the gaps (spin.go), and then sleeps in Link.Wait.
//   - An application that polls an empty CQ (Shard.Help, poller.go). The loop takes no turns
//     while an application polls. It checks for polls after 50 us, then less and less often, at
//     least every 1.6 ms, and resumes when there was none since its last check.
//   - An application that posts to a QP with nothing in flight to its destination, while the
//     loop leaves the turns to pollers (QP.Posted): it takes doorbells and sends, and receives nothing.
//   - The loop between two turns of its own, for a worker whose memory is fast (inline.go):
//     that is a turn of the worker, without the shard's lock, which writes from the received
//     frames (held.go). If it takes long, another goroutine continues the loop.
//   - Verbs that change a QP (qp.go) carry out its effects, and send a pending ACK before the
//     QP ends. They drive no turn, but advance the shard's time.
//   - The owner of an engine in virtual time (Engine.Step): nothing else runs then.
//
// # Locks
//
// In the order in which they are taken; no goroutine holds the locks of two shards:
//
//	device.Device.mu       in package device: objects, and the references between them
//	sleeper.waiting        the loop holds it in Link.Wait; verbs that send take it
//	Shard.mu               a turn, or a verb between turns
//	lock of a CQ or SRQ    if several shards use it (Engine.NewLock); given to package qp
//	doorbells.mu           this and the following take no other lock, and are held briefly
//	mailbox.mu             another shard puts a run here
//	answers.mu             a worker puts answers here; it never takes Shard.mu
//	Worker's own           package slowmem
//
// # Interfaces
//
// The [Owner] (package device) receives events, [GSI] (package cma) handles the datagrams of QP 1, and [Doorbells]
// (package server) reports the doorbells of QPs whose application is in another process. All are called per event,
// never per packet.
//
// # Faults
//
// Memory that an application of another process shares may be unmapped when a shard touches it.
// The loops recover (fault.go): they abandon the current QP, and the [Owner] ends its application.
//
// # Shutdown
//
// When QP.Close returns, no turn uses the QP, its rings or its CQs any more, and answers of its
// worker are discarded. When Engine.Quiesce returns, every turn that began before the call has
// ended, so no shard touches a region that was deregistered before the call. When Engine.Close
// returns, the loops have ended and the links are closed.
package engine
