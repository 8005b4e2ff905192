// Package roce is the software RDMA device: it implements ib.Device on a link that carries
// UDP payloads.
//
// This package has what a user of the device sees: the objects of the API, options, events
// and statistics. The objects are one to a file: qp.go, cq.go (with channels), pd.go (with
// regions), srq.go (with XRC domains), mw.go, ah.go, mcast.go; owned.go checks that the
// arguments of a verb are objects of the device and open. Package internal/engine has the
// loops that carry packets between QPs (package qp) and links; its documentation lists who
// drives them, and the locks. internal/slowmem touches memory that is not direct,
// internal/offload notices segments that do not arrive, internal/ipid checks ICRCs on sockets
// that hide the IPv4 identification.
//
// Verbs run on the caller's goroutine. Posting writes a byte ring and rings the shard's
// doorbell; polling reads one. Verbs that change a QP take the lock of its shard between two
// turns.
//
// A device has one shard or several, each a loop over a link of its own ([OpenShards]). What
// belongs to a QP belongs to its shard; the rest is shared as follows. With one shard there is
// no lock, copy or mailbox for it.
//
//	memory, keys, PDs    one mr.Table, read without lock
//	CQs, SRQs            a lock each, which is the innermost
//	AHs, XRC SRQs        one space of numbers; every shard has the table
//	multicast groups     joined on the first link; every shard knows its members
//	packets              go to their shard by its mailbox
//
// The port follows its network interface, of which somebody else tells: addresses.go has
// the GID table and the active MTU.
//
// Applications in other processes are tenants (tenant.go): their rings lie in memory that
// they share, and workers (workers.go) touch their memory. Applications take turns.
//
// The device owns the connection manager of its port (package cm) and QP 1 with it.
// Applications connect through event channels and IDs (ib.CM, ib.CMID): cm_port.go has the
// whole of it, step by step.
//
// With Options.Manual nothing runs by itself: the owner calls Step with a time of its own,
// so that whole networks run in virtual time, repeatably.
//
// Package host opens a device on a machine's network; packages under link carry the frames.
package roce
