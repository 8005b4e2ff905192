// Package rnic is the device of package ib on a real RoCE NIC, or on the kernel's
// rdma_rxe: ib.Device over libibverbs.
//
// It takes cgo, libibverbs and librdmacm (libibverbs-dev and librdmacm-dev 44 or newer,
// Debian 12), so it is behind a build tag:
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
// # Connections by address
//
// The kernel owns QP 1. OpenCM gives channels and IDs of its connection manager, over
// librdmacm; the device has CapCM where module rdma_ucm lets it. cm.go has the lock that all
// calls take, cm_channel.go the channels, cm_id.go the IDs, cm_connect.go what asks and
// answers, cm_event.go what comes of it, cm_addr.go addresses, cmshim.c the calls.
//
// QPs stay their owner's. librdmacm learns their numbers only, and InitQPAttr says what to
// modify them with.
//
// Each channel has a goroutine. It waits on the channel's file descriptor, copies each event,
// acknowledges it at once, and puts it where NextEvent finds it. It answers a peer's DREQ as
// well, which the kernel leaves to its users. So nothing waits for an application that does
// not read its events, but what it does not read stays in memory: a few events an ID, and at
// most 1,024 requests a listener.
//
// Who waits for whom at the end:
//
//   - CMID.Close destroys the kernel's ID and drops the ID's events. The kernel tells the peer,
//     once, and waits for none.
//   - CM.Close does so for each ID, lets all who are in NextEvent go, waits for the goroutine,
//     and closes the file descriptor then.
//   - Device.Close ends the channels first, and then the QPs and all else. What their IDs were
//     sent before, and a CMDeviceRemoval each, can still be read.
//   - A timeout of Connect that runs out later finds the ID over, and does nothing.
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
//
// Where librdmacm differs:
//
//   - A REJ has reason 28 or 35, no additional information, and a refused datagram service
//     status 2. Requests that end unread, and those beyond the backlog, are refused with 28.
//   - Nobody hears that a peer has taken a request back before Accept, which fails with
//     ib.ErrState then. How often was asked (CMEvent.Tries) is not known.
//   - Connect's timeout takes the request back; without one the kernel asks 16 times, 4.6 s
//     apart. Delay is refused: the kernel sends a MRA for each request.
//   - RC only in port spaces TCP and IB, UD only in UDP and IPoIB, and no service IDs beside
//     ports. A datagram service has the default Q_Key.
//   - Ports that are chosen are those of sysctl net.ipv4.ip_local_port_range. Ports below 1024
//     take CAP_NET_BIND_SERVICE.
//   - An ID that is bound to the unspecified IPv6 address cannot resolve an IPv4 one.
//   - CMOptionAckTimeout is for the REQ only if it is set before ResolveRoute. Without it
//     connections have 17, or what the device's ACK delay makes of it. The path MTU without
//     CMOptionPathMTU is that of the interface less 96 bytes, which may be below the port's.
//   - Groups of RoCEv2 are joined over IPv4 only.
package rnic
