// Package engine joins queue pairs (package qp) and links (package link): it is the loops of
// the software device. Package roce has the objects of the API on top of it.
//
// An [Engine] has a [Shard] for each link. A shard owns QPs, their timers, the accounts of
// their destinations and its link; what happens to these happens in a turn of the shard,
// under its lock, at the shard's time, which never goes back.
//
// # One turn
//
//	shard.go     advance       the time is at least that of the latest turn or verb
//	mailbox.go   take          runs for QPs of this shard that came by another one's link
//	receive.go   Link.Recv     a batch of runs; frame by frame: ICRC, decode, QP, and
//	                           QP.HandlePackets for packets of one QP that follow each other;
//	                           frames like the one before: ICRC, QP.HandleAlike
//	doorbell.go  take          QPs with new requests: QP.Doorbell
//	answers.go   take          what workers have done to slow memory: QP.Placed, QP.Fetched
//	shard.go     runTimers     QPs whose deadline has passed: QP.HandleTimeout
//	transmit.go  drain         ready QPs in their order: QP.NextPackets, headers, payload
//	                           copied into runs, QP.Sent, Link.Send
//
// After each input to a QP, and after its packets were copied, effects.go carries out what
// it wants done (qp.Effects): placements and fetches to its worker, into the ready list, into
// the heap of deadlines, events to the [Owner]. A large batch is answered in between: after
// each 128 frames the turn takes answers, runs timers and sends. No step allocates.
//
// # Who drives
//
// A turn is taken by one of these, whoever has the lock:
//
//   - The loop (loop.go): a goroutine for each shard. It takes turns while there is work,
//     spins for a time that follows the gaps (spin.go), and then sleeps in Link.Wait.
//   - An application that polls an empty CQ (Shard.Help, poller.go). The loop stands aside
//     while somebody polls, and comes back when nobody has polled for 50 us.
//   - An application that posts where nothing is in flight, while the loop stands aside
//     (QP.Posted): it takes doorbells and sends, and receives nothing.
//   - The loop between two turns of its own, for a worker whose memory is quick (inline.go):
//     that is a turn of the worker, without the shard's lock. When it lasts, another
//     goroutine goes on with the loop.
//   - Verbs that change a QP (qp.go) carry out its effects, and send an ACK that is owed
//     before it ends. They drive no turn, but move the time on.
//   - The owner of an engine in virtual time (Engine.Step): nothing else runs then.
//
// # Locks
//
// In the order in which they are taken; nobody holds those of two shards:
//
//	roce.Device.mu         above: objects, and what refers to what
//	sleeper.waiting        the loop holds it in Link.Wait; verbs that send take it
//	Shard.mu               a turn, or a verb between turns
//	lock of a CQ or SRQ    if several shards use it (Engine.NewLock); given to package qp
//	doorbells.mu           leaves, held for some instructions each:
//	mailbox.mu             another shard puts a run here
//	answers.mu             a worker puts answers here; it never takes Shard.mu
//	Worker's own           package slowmem
//
// # What comes from above
//
// The [Owner] takes events, [GSI] decides about datagrams of QP 1, [Doorbells] are those of
// QPs whose application is in another process. All are called per event, never per packet.
//
// # Faults
//
// Memory that an application of another process shares may turn out not to be there. The loops
// survive that (fault.go): the QP at hand is abandoned, the [Owner] ends its application.
//
// # Ends
//
// When QP.Close returns, no turn looks at the QP, its rings or its CQs any more, and answers
// of its worker find it gone. When Engine.Quiesce returns, every turn that began before has
// ended: a region that was deregistered before is not touched by a shard. When Engine.Close
// returns, the loops have ended and the links are closed.
package engine
