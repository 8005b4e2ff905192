// Package device is the software RDMA device: it implements roce.Device on links that carry UDP payloads.
//
// It has the objects of the API, options, events and statistics, and what package server needs and users do not:
// tenants and workers. Each kind of object has a file: qp.go, cq.go (with channels), pd.go (with
// regions), srq.go (with XRC domains), mw.go, ah.go, mcast.go; owned.go checks that the
// arguments of a verb are objects of the device and open. Package internal/engine has the
// loops that carry packets between QPs (package qp) and links; its documentation lists the
// goroutines that drive them, and the locks. internal/slowmem touches memory that is not direct,
// internal/offload detects segments that do not arrive, internal/ipid checks ICRCs on sockets
// that hide the IPv4 identification.
//
// Verbs run on the caller's goroutine. Posting writes a byte ring and rings the shard's
// doorbell; polling reads a byte ring. Verbs that change a QP take the lock of its shard between
// two turns.
//
// A device has one shard or several, each a loop over a link of its own ([OpenShards]). The
// state of a QP belongs to its shard; shards share the rest as follows. A device with one shard
// needs no lock, copy or mailbox for that.
//
//	memory, keys, PDs    one mr.Table, read without lock
//	CQs, SRQs            each has a lock, which is the innermost
//	AHs, XRC SRQs        one space of numbers; every shard has the table
//	multicast groups     joined on the first link; every shard knows its members
//	packets              cross to the shard of their QP by its mailbox
//
// The port follows its network interface: the device's owner calls SetAddresses, SetMTU and SetPortState.
// addresses.go has the GID table and the active MTU.
//
// Applications in other processes are tenants (tenant.go): their rings are in memory that they
// share with this process, and workers (workers.go) access their registered memory. Applications
// take turns in sending.
//
// The device owns the connection manager of its port (package cm), and QP 1, which it uses.
// Applications connect through event channels and IDs (ib.CM, ib.CMID). Package internal/cma
// describes the connection manager step by step.
//
// With Options.Manual no goroutine runs: the owner calls Step with a time of its own, so that
// simulations of whole networks run in virtual time and are repeatable.
package device
