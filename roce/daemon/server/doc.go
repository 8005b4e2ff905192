// Package server is the daemon's side of package abi: it lets other processes use the devices
// of this one.
//
// Each connection is a session (session.go), unless it becomes a hold (hold.go). A session holds
// the client's objects by handle, and is a tenant of the device (device.Tenant). Its goroutine
// carries out requests (handlers.go, qp.go, memory.go) by calling verbs of package device. The
// device's shards do the rest: they poll clients' doorbells (doorbells.go), take work requests
// from the rings, which lie in memory shared with the client (shared.go), and write completions
// there. Events are sent on sockets that never block the sender (outbox.go).
//
// What a client may do wrong, and how other clients are protected:
//
//   - It writes garbage into its rings: the request fails, or the QP (package ring copies each
//     request once and checks the copy). Garbage in its doorbells makes the shard poll QPs of that client only.
//   - It does not read its events or replies: events are queued up to a limit and then dropped;
//     for replies only the session's goroutine waits, never a shard. At most one reply with
//     descriptors may be unread, as the kernel limits descriptors in flight for the whole daemon
//     (reply.go).
//   - It sends malformed requests: they are refused, or the connection ends.
//   - It passes memory that can shrink: it is refused (F_SEAL_SHRINK is required).
//   - It leaves the connection to a child, or sends it to another process: requests of any process
//     but the one that has connected are refused, whatever descriptors it has (sender.go).
//   - It makes holes in memory that it shares, for which whoever touches that memory would wait: they cannot be
//     made, as the server seals a memfd before it touches it (F_SEAL_FUTURE_WRITE, seal.go). It keeps the kernel
//     from sealing it: the threads that close the files of its user wait (session.seal), and no lock is held.
//   - It passes descriptors that never finish closing: a few threads for each user close them,
//     and the session does not wait (closer.go). Descriptors are accepted only after the hello.
//   - It asks for more than its share: Limits apply, and limits on mappings, of which a process
//     has few (package machine). It connects until descriptors run out: some are reserved for
//     existing clients (descriptors.go), and a refused connection gets an error and is closed.
//   - It dies: its connection ends, and its objects are closed, QPs first. A child may still hold
//     the socket, so each session watches the process that has connected (process.go).
//   - Its memory is missing all the same: by a bug of this package, or because the kernel cannot bring
//     in a page. The access faults, and session.Fault drops the client, counts the fault and logs it with
//     the stack; the daemon goes on. In tests and with the
//     build tag guardmaps the process ends instead, to show the bug.
//
// # Who waits for whom
//
// No goroutine waits for a client without an end: each of these waits ends with the session (session.ending, the
// deadline that hangUp sets, the close of the descriptor) or has a limit of time.
//
//	session.serve       the next request               the socket (abi.Conn)
//	session.read        that replies are read          the clock: it looks at the socket again and again
//	session.receive     earlier descriptors are closed the user's closer, takeLimit
//	session.seal        the kernel, and who writes     the user's closer, takeLimit
//	session.retire      the worker's turn              a channel; a turn longer than a second ends the session
//	watchProcess        the end of the process         its pidfd (abi.File)
//	watchChannel        the close of a CM channel      the socket of its events (abi.File)
//	awaitRelease        the end of a hold              its pipe (abi.File)
//	outbox.settle       that the client reads          the socket of its events (abi.File)
//	a shard             frames, doorbells              its link, which watches the clients' eventfds by one epoll
//	AwaitIdle, Drain    that clients leave             the clock; a channel
//
// A server whose clients are connected by an abi.Local, and whose devices are driven by Step (Options.Manual), waits
// for channels and the clock only. Package daemontest runs it in virtual time.
//
// # Locks
//
// In the order in which they are taken. The locks of the device (package engine lists them) stand in the middle: what
// is above them may be held over a verb; what is below is taken by calls of the device, with a shard or the connection
// manager waiting, so nothing that can block, and no verb, is done while it is held.
//
//	Server.looking        inspections, one at a time (inspect.go)
//	domains.mu            the shared XRC domains of a device
//	domain.life           a domain or a target that is made, opened or closed
//	cmAccounts.mu         the users' accounts at the connection manager
//	locks of the device   Device.mu, those of shards, that of the connection manager
//	doorbells.mu          a shard's doorbells: its turn, and sessions that come and go
//	domain.mu             who has a target open: Event, Fault, Includes
//	session.mu            handles, which Event and Stage look up
//	accounts.mu           booked by Alloc under Device.mu, by Stage under a shard's, by Charge under the manager's
//	closer.mu, pool.mu    the jobs of a user's threads, which enter counts
//	outbox.mu             a queue of notes, and the attempt to send one, which does not block
//
// files.mu, memfds.mu and memfds.reach are held while pages are mapped and populated, which may take long. Only
// sessions' goroutines and those of reap take them, in this order, and before accounts.mu; never a call of the device.
// Server.mu is taken before session.mu (shut), unit.mu before outbox.mu (passEvents). Those of failures, visits and
// groups take no other lock, but that a visit's follows that of visits.
//
// # Lifetimes
//
// The daemon maps memory that a client shares: the rings of its objects, its doorbells (shared.go), and
// the memfds that it has registered (memfd.go). They are accessed by:
//
//   - Rings: the shards of the QPs that use them, and the verbs, under the lock of the shard,
//     or of the CQ or SRQ where there are several shards.
//   - Doorbells: the shards, under the lock of their doorbells (doorbells.go).
//   - Memfds: the shards, and the session's worker (device.Worker) in its turns, if a work request
//     also names memory of the client's process. A turn runs on the worker's goroutine, or
//     inline in a shard's loop, and holds no lock.
//
// A mapping ends in this order, whether a client closes an object, replaces it or disconnects:
//
//  1. No new use begins. The handle is deleted, the key is revoked, the doorbell no longer names
//     a QP. A session that ends closes its worker first: no turn begins any more.
//  2. The users end. QPs are closed before the objects that they use, in the order of kind; each
//     leaves its shard under the shard's lock, with its state of partly received requests. An
//     object with users left is not closed. Once device.MR.Deregister returns, no shard accesses
//     the memory.
//  3. The last completion is written before the QP leaves its shard. An answer that a worker
//     gives later finds no QP.
//  4. The worker's current turn ends. The memory may block it for ever, so no goroutine that
//     serves other clients waits for it. A request to deregister waits, since the client may
//     reuse its memory after the answer, but no longer than the session lasts (retire); a
//     session whose memory blocks for stuckAfter is ended. What a session leaves is freed by a
//     goroutine of its own, which waits for Worker.Done (reap).
//  5. The memory is unmapped. Only then are bytes, mappings and objects, and the session itself,
//     subtracted from the accounts.
//
// Sessions of a user may share an XRC domain, and its target QPs (xrcd.go). A target uses an SRQ of
// any of them, and memory that is registered in the SRQ's PD: a session that ends closes its SRQs,
// which all targets forget under the locks of their shards, and memory of a process is accessed by
// the worker of its own session (device.PD), which reap waits for. A message whose placement that
// worker has not begun is never answered; the peer's retries end its connection. The domain, and
// each target, ends with its last handle.
//
// No goroutine waits for a client's memory while it holds a lock, so memory that blocks delays
// its own session only: not other sessions, not lists of objects (inspect.go), not the end of
// the daemon. Serve waits a few seconds for sessions that are held up by something else, a
// kernel call for example, and then returns without them.
//
// Where Linux would ask for a capability, the server decides by the user of the process that
// has connected (SO_PEERCRED, privilege.go): privileged Q_Keys are for root and the daemon's
// own user. The connection keeps this user, even if the process changes its user later. No other
// process can use the connection: the kernel tells of each request who has sent it
// (SCM_CREDENTIALS, sender.go).
//
// Clients' datagrams to QP 1 are dropped and counted (drop_forged_mad): only the device itself
// sends messages of the connection manager.
//
// Memory of a client's process is probed when it is registered, so that memory without
// permission is refused at once. The process is the one that has connected, even if its PID is
// reused (SO_PEERPIDFD); a child of it does not count. Access depends on the process's user:
//
//   - The daemon's own user: by the permission to ptrace, which the kernel checks at each
//     access. If the process runs another program (execve) and keeps the connection open, that
//     program's memory is accessed; if the program has more rights than its user, the kernel
//     refuses a daemon without CAP_SYS_PTRACE.
//   - Another user: by /proc/self/mem, which the client has opened and sends along. It reaches
//     the memory of the program which has opened it and no other, whatever rights the daemon
//     has.
package server
