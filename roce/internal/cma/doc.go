// Package cma is the agent between a device and its connection manager, as Linux's cma.c is between applications and
// cm.c: ports, event channels, IDs. The state machine is package cm; its messages go over QP 1 (package engine).
// Applications of this process and, through a daemon, of others have event channels and IDs (ib.CM, ib.CMID), as
// programs have those of Linux's rdma_ucm. The device is a Host here.
//
//	port.go     the state machine with its time, its events
//	hub.go      the lock, and what ports of several devices share
//	owner.go    users, and their limits
//	channel.go  event channels
//	id.go       IDs: their states, options and end
//	bind.go     addresses and ports
//	connect.go  verbs of the active and the passive end
//	dial.go     attempts to connect, by peer, and their end by ICMP errors
//	event.go    conversion of the state machine's events to those of rdma_cm
//	attr.go     attributes for the QPs of connections
//	group.go    multicast groups
//
// # The lock
//
// Port.mu guards the state machine, and all channels and IDs. Ports that are joined (Join), those of a daemon, have one
// lock: so an ID may move from one to another, as in Linux's cma.c, when it gets an address (ID.port).
//
// It is the innermost lock except for those of links: the
// first shard takes it with its own lock held, so its holder must not take locks of shards and devices. A call holds it
// for an input to the state machine and for the resulting events, which it puts into the channels' queues. Messages
// stay in the state machine until the first shard, which the call wakes, takes them out. So an application never waits
// for the network here, and a turn of a loop waits at most for an application's call. A call that has many IDs to
// change, as the end of a channel, releases the lock between them (Port.breathe).
//
// # A connection, step by step
//
// A REQ arrives: engine.gsiQP checks the Q_Key, Port.Receive hands the datagram to the state machine, which finds the
// listener by service ID and address, chooses the first PSN, and raises Request. request makes a new ID on the
// listener's channel, and queues CMConnectRequest; unless the listener's backlog is full (the REQ is ignored, and the
// peer repeats it) or the owner may have no more IDs (REJ, reason 3). Until the answer, duplicates of the REQ are
// dropped.
//
// Accept: the application has moved its QP to RTS before, because the peer may send as soon as it has the REP. The QP
// must be the owner's. The REP is retransmitted until the RTU arrives.
//
// The RTU is lost: the REP is retransmitted, and the peer's manager answers with the RTU again. If data have arrived
// before the RTU, the application may call Notify, which establishes the connection at once. If nothing arrives the ID
// gets CMUnreachable.
//
// DREQs cross: each end takes the other's as the answer to its own, sends a DREP, and enters timewait with one
// CMDisconnected. The DREPs arrive in timewait and are dropped.
//
// An owner ends, by its own call or with its process: each of its IDs is released, in whatever state it is. Bound and
// resolved IDs need no message. A pending REQ is withdrawn (REJ, reason 4). A peer's request without an answer is
// rejected (reason 28; 8 if no application has read it), as is one that waits for its RTU. A connection gets a DREQ,
// which the state machine retransmits without the owner, and timewait. A listener's port becomes free. So the peer
// learns of the end within a round trip, and only timewait remains.
package cma
