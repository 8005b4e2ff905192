// Package roce is the software RDMA device: it implements ib.Device on a link
// that carries UDP payloads.
//
// A [Device] has one shard or several: loops over one link each, which own the QPs
// (package qp), their timers and the destinations. One step of a loop is
//
//	receive.go    mailbox, link.Recv -> ICRC -> decode -> QP -> HandlePackets;
//	              what is like the packet before: ICRC -> HandleAlike
//	shard.go      doorbells, deadlines
//	transmit.go   ready QPs -> NextPackets -> headers, payload copied -> runs -> link.Send
//
// A packet takes this way in one direction and without allocation. The payload of
// what is sent is copied from registered memory exactly once, into the run that
// the link gets; what is received goes from the link's buffer to its place.
//
// Several shards work side by side (shards.go): the low bits of a QP number name the
// shard, and a packet that came by the link of another one crosses to it by a mailbox.
//
// Memory that is not direct is touched by workers (worker.go, work.go), on goroutines that
// may wait for it; a loop between two of its steps is one of these while memory is quick
// (errand.go). Applications take turns (share.go).
//
// Verbs run on the caller's goroutine. Posting writes a byte ring and rings the
// shard's bell; polling reads one. Verbs that change a QP take the shard's lock
// between steps.
//
// The port follows its network interface, of which somebody else tells: addresses.go has
// the GID table and the active MTU.
//
// The objects of the API are one to a file: qp.go, cq.go (with channels), pd.go
// (with regions), srq.go (with XRC domains), mw.go, ah.go, mcast.go. owned.go has the check that all
// verbs make of their arguments.
//
// Applications may have a connection manager each on the one port: gsi.go says which of
// several general services QPs gets what arrives for QP 1.
//
// With Options.Manual nothing runs by itself: the owner calls Step with a time of
// its own, so that whole networks run in virtual time, repeatably.
//
// identify.go has the check of ICRCs on sockets that hide the IPv4
// identification, offload.go what notices that the frames of runs do not arrive.
// stats.go has the counters. Package host opens a device on a machine's network;
// packages under link carry the frames.
package roce
