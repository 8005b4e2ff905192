// Package rnic implements ib.Device over libibverbs, for a real RoCE NIC or the kernel's
// rdma_rxe.
//
// It needs cgo, libibverbs and librdmacm (libibverbs-dev and librdmacm-dev 44 or newer,
// Debian 12), so it has a build tag:
//
//	go build -tags rnic ./...
//
// Without the tag the package is a stub, whose Open fails with
// ib.ErrNotSupported. Its tests need a device, which the environment names
// (GOROCE_RNIC); go test ./tests/rxe runs them in guests, on rdma_rxe.
//
// # Reading it
//
// [Open] finds the device. device.go holds it, attr.go queries its attributes, and
// probe.go finds out by trial what no verb tells. object.go tracks the lifetime of
// all objects: each knows which objects it uses, and counts those that use it. The
// verbs are in one file for each kind of object. send.go and recv.go post, cq.go
// polls: Go fills flat structs in C memory, and one call of shim.c converts a batch
// of them to the library's requests and posts them, or polls a batch. waiter.go
// waits on file descriptors for channel.go and event.go. constants.go has the
// compiler check the constants of package ib against verbs.h.
//
// Verbs that create, modify or destroy objects lock the device's mutex. Posting and
// polling lock only the mutex of their queue.
//
// # Connections by address
//
// The kernel owns QP 1. OpenCM returns channels and IDs of its connection manager, by
// librdmacm; the device has CapCM if module rdma_ucm permits its use. cm.go has the lock that
// all calls take, cm_channel.go the channels, cm_id.go the IDs, cm_connect.go requests and
// answers, cm_event.go the events, cm_addr.go addresses, cmshim.c the calls of librdmacm.
//
// The application owns the QPs. librdmacm learns their numbers only, and InitQPAttr returns the
// attributes for Modify.
//
// Each channel has a goroutine. It waits on the channel's file descriptor, copies each event,
// acknowledges it at once, and queues it for NextEvent. It also answers a peer's DREQ, which
// the kernel does not do by itself. So an application that does not read its events blocks
// nothing, but unread events stay in memory: a few for each ID, and at most 1,024 requests for
// each listener.
//
// What happens at the end:
//
//   - CMID.Close destroys the kernel's ID and drops the ID's events. The kernel notifies the
//     peer once, and does not wait for an answer.
//   - CM.Close does so for each ID, makes waiting calls of NextEvent return, waits for the
//     goroutine, and then closes the file descriptor.
//   - Device.Close ends the channels first, and then the QPs and all else. Unread events of
//     the IDs, and a CMDeviceRemoval for each, can still be read.
//   - A timeout of Connect that expires later finds the ID in its final state, and does nothing.
//
// # Memory
//
// A registered buffer may be any Go memory: it is pinned until the region is closed, or Rereg
// replaces the buffer. Requests refer to it by numbers, so nothing else needs pinning.
//
// # Where libibverbs differs from other devices of package ib
//
//   - Peers cannot invalidate a region: ib.RemoteInvalidate is refused, and
//     CapLocalInv means windows of type 2.
//   - Rereg is refused by providers that lack it, librxe among them; CapRereg is
//     set if a trial at Open succeeds. Rereg cannot choose an IOVA. If the kernel or
//     the device fails to carry it out, the region can only be closed.
//   - MW.RKey follows what was posted. When a bind fails later, by its completion,
//     the window still has its former key.
//   - Closing a QP unbinds the windows of type 2 that it has bound, and gives them
//     another key.
//   - ATOMIC WRITE and FLUSH are not in ibv_post_send. RC QPs support them if the
//     device and its provider do, by ibv_wr_atomic_write and ibv_wr_flush: the
//     first from rdma-core 44 on; for FLUSH rdma-core 44 is too old, that of
//     Debian 13 (56) is not. The 8 bytes of an ATOMIC WRITE are read when it is
//     posted.
//   - A completion has the flags and the length that the provider gives it:
//     rdma_rxe sets WCGRH for every receive, not for UD only.
//
// Where librdmacm differs:
//
//   - A REJ has reason 28 or 35 and no additional information; a refused datagram service has
//     status 2. Requests that end unread are refused with 28. Those beyond the backlog
//     wait, up to 1,024 of them.
//   - There is no event if a peer withdraws its request before Accept; Accept then fails with
//     ib.ErrState. The number of attempts (CMEvent.Tries) is not known.
//   - Connect's timeout withdraws the request; without one the kernel sends it 16 times, 4.6 s
//     apart. Delay is refused: the kernel sends a MRA for each request by itself.
//   - RC only in port spaces TCP and IB, UD only in UDP and IPoIB, and no service IDs beside
//     ports. A datagram service has the default Q_Key.
//   - Automatic ports are those of sysctl net.ipv4.ip_local_port_range. Ports below 1024
//     need CAP_NET_BIND_SERVICE.
//   - An ID that is bound to the unspecified IPv6 address cannot resolve an IPv4 address.
//   - CMOptionAckTimeout is used in the REQ only if it is set before ResolveRoute. Without it
//     connections use 17, adjusted by the device's ACK delay. The path MTU without
//     CMOptionPathMTU is that of the interface less 96 bytes, which may be below the port's.
//   - Multicast groups of RoCEv2 can be joined over IPv4 only.
package rnic
