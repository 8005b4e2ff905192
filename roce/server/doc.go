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
package server
