// Package rnic is the device of package ib on a real RoCE NIC, or on the kernel's
// rdma_rxe: ib.Device over libibverbs.
//
// It takes cgo and libibverbs (libibverbs-dev 44 or newer, Debian 12), so it is
// behind a build tag:
//
//	go build -tags rnic ./...
//
// Without the tag the package is a stub, whose Open fails with
// ib.ErrNotSupported. Its tests need a device, which the environment names
// (GOROCE_RNIC); go test ./tests/rxe runs them in guests, on rdma_rxe.
//
// # Reading it
//
// [Open] finds the device, device.go has it, attr.go describes it and probe.go
// tries out what no verb tells. object.go is the life of all objects: each knows
// what it uses and who uses it. The verbs then stand one kind of object a file.
// send.go and recv.go post, cq.go polls: Go fills flat structs in C memory, and
// one call of shim.c makes the library's requests of a batch of them and posts
// them, or polls a batch. waiter.go waits on file descriptors for channel.go and
// event.go. constants.go is where the compiler holds package ib to verbs.h.
//
// Verbs that make, change or end objects take turns on the device's mutex.
// Posting and polling take only that of their queue.
//
// # Memory
//
// A registered buffer may be any Go memory: it is pinned until the region is
// closed, or registered anew on other memory. Requests name it by numbers, so
// nothing else needs pinning.
//
// # Where libibverbs differs from other devices of package ib
//
//   - Peers cannot invalidate a region: ib.RemoteInvalidate is refused, and
//     CapLocalInv means windows of type 2.
//   - Rereg is refused by providers that lack it, librxe among them; CapRereg is
//     what a trial at Open found. It cannot choose an IOVA.
//   - MW.RKey follows what was posted. When a bind fails later, by its completion,
//     the window still has its former key.
//   - Closing a QP takes the windows of type 2 away that it has bound: they are
//     bound to nothing then, under another key.
//   - ATOMIC WRITE and FLUSH are not in ibv_post_send. RC QPs have them where the
//     device and its provider do, by ibv_wr_atomic_write and ibv_wr_flush: the
//     first from rdma-core 44 on; for FLUSH rdma-core 44 is too old, that of
//     Debian 13 (56) is not. The 8 bytes of an ATOMIC WRITE are read when it is
//     posted.
//   - A completion has the flags and the length that the provider gives it:
//     rdma_rxe says WCGRH for every receive, not of UD only.
package rnic
