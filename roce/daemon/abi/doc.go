// Package abi is the protocol between programs and the daemon on one machine, for both ends.
// The protocol has a version; the API of the package is not stable.
//
// A client connects to a Unix socket of type SOCK_SEQPACKET. Each packet is a message: a
// [Header], and a body that is a struct of this package as it lies in memory: little-endian
// on the supported machines, fields at their natural alignment, without hidden padding. A
// client sends one request after another, each with a sequence number; the daemon answers in
// order. A reply whose Status is not OK has four texts as its body ([PutError]). File
// descriptors are passed by SCM_RIGHTS.
//
//	client                                daemon
//	Hello      versions, magic       ->
//	                                 <-   HelloReply  devices
//	Open       name                  ->
//	                                 <-   OpenReply   attributes, a socket
//	ShareDoorbells  a memfd          ->
//	                                 <-               eventfds
//	CreateCQ, ShareMemory, RegMR ... ->               memfds
//	                                 <-   Object, Ring, RegReply ...: handles
//	Close      handle, kind          ->
//	                                 <-   CloseReply  how many events of the object were sent
//
// Memory that both ends use lies in memfds of the client's. The client makes a memfd, forbids that it shrinks
// (F_SEAL_SHRINK), maps it, and sends it with the request that needs it. The daemon maps it and seals it with
// F_SEAL_FUTURE_WRITE before it touches a page of it. From then on nobody can take pages away, which others
// would wait for, and nobody can map the memfd for writing any more: so the client has to do that before.
//
// The data path uses no messages. The rings of queues (package ring) lie in memfds that come with the
// requests that create the queues. A client writes work
// requests there and, if the ring asks for it, rings the QP's doorbell (ring.Doorbells). Only
// if the doorbells say that the daemon sleeps does it write to the shard's eventfd. Completions
// appear in rings. The event of an armed CQ is a [Completion] on the socket of its channel; an
// asynchronous event is an [Event] on another socket. When a connection ends, the daemon closes
// all of its objects. docs/abi.md describes the protocol for clients in other languages.
//
// In a simulation (testing/synctest) client and server are in one process, and a [Local] connects them. Everything
// above stays as it is, and so do the calls to the kernel, none of which blocks. What differs is who waits: a
// goroutine that waits in the poller of Go's runtime keeps virtual time from passing. So both ends wait for a
// descriptor in one way only: for a [Conn] by its methods, for what a message has carried by the [File] that they make
// of it. On a Local these wait for a channel, and each of them that changes something rings the bell of the connection
// (bell.go): all who wait look again. The bell also wakes the server's devices, which watch the clients' eventfds.
package abi
