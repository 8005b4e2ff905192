// Package abi is the protocol between programs and the daemon on one machine, for both ends.
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
//	                                 <-   OpenReply   attributes, doorbells, sockets
//	AllocPD, CreateCQ, RegMR ...     ->
//	                                 <-   Object, Ring, RegReply ...: handles, memfds
//	Close      handle                ->
//	                                 <-   CloseReply  how many events of the object were sent
//
// The data path uses no messages. The rings of queues (package ring) lie in sealed memfds,
// which come with the replies to the requests that create the queues. A client writes work
// requests there and, if the ring asks for it, rings the QP's doorbell (ring.Doorbells). Only
// if the doorbells say that the daemon sleeps does it write to the shard's eventfd. Completions
// appear in rings. The event of an armed CQ is a [Completion] on the socket of its channel; an
// asynchronous event is an [Event] on another socket. When a connection ends, the daemon closes
// all of its objects. docs/abi.md describes the protocol for clients in other languages.
package abi
