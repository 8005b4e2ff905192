// Package server gives the devices of this process to others: the daemon's side of
// package abi.
//
// A connection is a session (session.go): the objects that a client has made, by handle, and its
// place as a tenant of the device (roce.Tenant). Its goroutine carries out requests
// (handlers.go, qp.go, memory.go), which are verbs on package roce. The device's shards
// do the rest: they look at clients' doorbells (doorbells.go), take requests out of the
// rings, which lie in memory that the client shares (shared.go), and write completions
// there. Events leave by sockets that nobody waits for (outbox.go).
//
// What a client can do, and what that can do to others:
//
//   - It writes nonsense into its rings: the QP fails (package ring copies out once,
//     then checks). Into its doorbells: the shard looks at QPs of its own in vain.
//   - It does not read its events, or its replies: they are kept up to a limit, and lost
//     then; its own goroutine waits, no shard. It has one reply with descriptors unread at
//     most, for those in flight are counted for the daemon as a whole (reply.go).
//   - It sends requests that make no sense: they are refused, or the connection ends.
//   - It passes memory that shrinks: such is not taken (F_SEAL_SHRINK).
//   - It passes descriptors that take for ever to close: what closes them has a few threads
//     for each user, and its session does not wait (closer.go). No descriptors are taken from
//     a client that was not let in.
//   - It asks for more than its share: Limits, and mappings, of which a process has few
//     (machine.go). It connects until there are no descriptors: some are kept back for those
//     who are there (descriptors.go), and who is refused is told so and closed at once.
//   - It dies: its connection ends, and what it has made is closed, QPs first.
//   - Its memory is not there in spite of all that, by a mistake of this package, or since the
//     kernel cannot bring a page: the access is a fault, the client is dropped (session.Fault),
//     which is counted and logged with the stack, and the process lives on. Tests and the build
//     tag guardmaps end it instead, to see the mistake.
//
// # Lifetimes
//
// Memory that a client shares is mapped here: the rings of its objects, its doorbells, and
// the memfds that it has registered (memfd.go). Who touches it:
//
//   - Rings: the shards of the QPs that use them, and the verbs, under the lock of the shard,
//     or of the CQ or SRQ where there are several shards.
//   - Doorbells: the shards, which hold the lock of theirs (doorbells.go).
//   - Memfds: the shards, and the worker of the session (roce.Worker) in its turns, where a
//     request names memory of the process too. A turn takes place on the worker's goroutine or
//     inline, by a shard's loop, and holds no lock.
//
// A mapping ends in this order, whether a client closes an object, replaces it or goes:
//
//  1. No new use. The handle is gone, the key is revoked, the doorbell is silent. A session that
//     ends closes its worker first: no turn begins any more.
//  2. The users end. QPs go before what they use, in the order of kind; each leaves its shard
//     under the lock of that, with what it holds of requests half received. Objects that have
//     users left are not closed. When roce.MR.Deregister returns no shard touches the memory.
//  3. The last completion is written before the QP leaves its shard. What a worker answers
//     later finds no QP.
//  4. The turn of the worker that is under way ends. Its memory may never move; so nobody
//     waits for it who has others to serve. A request to deregister waits, since the client may
//     use its memory anew when it has the answer, but no longer than the session lasts
//     (retire); a session whose memory does not move for a second is ended. What a session
//     leaves waits for Worker.Done on a goroutine of its own (reap).
//  5. It is unmapped, and only then booked out: bytes, mappings and objects, and the session
//     as one of its user's.
//
// No goroutine waits for a client's memory while it holds a lock, so nothing but the session
// itself feels that memory hangs: not the other sessions, not who lists objects (inspect.go),
// not the end of the daemon. Serve waits a few seconds for sessions that do not end for
// another reason, a kernel call for one, and returns without them.
//
// Who may do what, beside connecting, is decided by the user of the process that has
// connected (SO_PEERCRED), where Linux asks for capabilities (privilege.go): privileged
// Q_Keys are for root and the daemon's own user. A process that
// changes its user later, or hands its connection on, stays who it was.
//
// Clients' datagrams to QP 1 stay here, and are counted (drop_forged_mad): messages of the
// connection manager are the device's own.
//
// Memory of a client's process is looked for when it is registered, so that one which may
// not be touched is refused then. The process is the one that has connected, also if its
// number is used again (SO_PEERPIDFD); a child of it is another. What of it is touched
// depends on whose it is:
//
//   - The daemon's own user's: by the right to ptrace, which the kernel asks for at each
//     access. A process that begins another program (execve) with the connection kept open
//     shows the memory of that; if the program has more rights than its user, the kernel
//     refuses a daemon without CAP_SYS_PTRACE.
//   - Another user's: by /proc/self/mem, which the client has opened and sends along. That
//     is the memory of the program which has opened it and no other, whatever rights the
//     daemon has.
package server
