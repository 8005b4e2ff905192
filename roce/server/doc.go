// Package server gives the devices of this process to others: the daemon's side of
// package abi.
//
// A connection is a session (session.go): the objects that a client has made, by handle, and its
// place as a tenant of the device (roce.Tenant). Its goroutine carries out requests
// (handlers.go, qp.go, memory.go), which are verbs on package roce. The device's shards
// do the rest: they look at clients' doorbells (bells.go), take requests out of the
// rings, which lie in memory that the client shares (shared.go), and write completions
// there. Events leave by sockets that nobody waits for (outbox.go).
//
// What a client can do, and what that can do to others:
//
//   - It writes nonsense into its rings: the QP fails (package ring copies out once,
//     then checks). Into its doorbells: the shard looks at QPs of its own in vain.
//   - It does not read its events, or its replies: they are kept up to a limit, and lost
//     then; its own goroutine waits, no shard.
//   - It sends requests that make no sense: they are refused, or the connection ends.
//   - It passes memory that shrinks: such is not taken (F_SEAL_SHRINK).
//   - It passes descriptors that take for ever to close: its session does not wait
//     (foreign.go).
//   - It asks for more than its share: Limits. It connects until there are no descriptors:
//     some are kept back for those who are there (descriptors.go).
//   - It dies: its connection ends, and what it has made is closed, QPs first.
//
// Who may do what, beside connecting, is decided by the user of the process that has
// connected (SO_PEERCRED), where Linux asks for capabilities (privilege.go): privileged
// Q_Keys and ports below 1024 are for root and the daemon's own user. A process that
// changes its user later, or hands its connection on, stays who it was.
//
// Datagrams to QP 1 package roce looks at (roce/gsi.go). They leave from general services
// QPs only, of which each client may have some, and from an address of the device: the
// source GID is that of the table, never the client's word. What the messages of the
// connection manager say is held to what the client has: communication IDs that it uses
// first or has been asked with, QPs of its own, and acceptance of requests for services
// that it serves. The source addresses in a request's path and private data (IBTA A11) must
// be of the device; in Linux the kernel writes them. Source ports, which nobody keeps for
// all clients, are not looked at. Other management classes pass.
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
