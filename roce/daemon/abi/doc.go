// Package abi is what programs and the daemon say to each other on one machine: the
// bytes, for both ends.
//
// A client connects to a Unix socket of packets (SOCK_SEQPACKET). Each packet is a
// message: a [Header], and a body that is a struct of this package as it lies in memory,
// little-endian on the machines there are, fields on their natural boundaries, without
// hidden padding. A client sends one request after another, each with a number of its
// own; the daemon answers in order. A Status other than OK has four texts behind it
// ([PutError]). File descriptors come along by SCM_RIGHTS.
//
//	client                                daemon
//	Hello      versions, magic       ->
//	                                 <-   HelloReply  devices
//	Open       name                  ->
//	                                 <-   OpenReply   attributes, doorbells, sockets
//	AllocPD, CreateCQ, RegMR ...     ->
//	                                 <-   Object, Ring, RegReply ...: handles, memfds
//	Close      handle                ->
//	                                 <-   nothing but the header
//
// What is quick goes another way. The rings of queues (package ring) lie in sealed
// memfds, which come with the replies that make them. A client writes requests there
// and, where the ring asks for it, rings the QP's doorbell (ring.Doorbells); only when that says
// that the daemon sleeps does it write to the shard's eventfd. Completions appear in
// rings; the event of an armed CQ is a [Completion] on its channel's socket, an
// asynchronous one an [Event] on another. When a connection ends, all that was made by
// it ends. docs/abi.md has all of it for clients in other languages.
package abi
