// Package goroce is the front page of a RoCEv2 stack in pure Go and user space: InfiniBand verbs on any 64-bit Linux
// machine, without an RDMA NIC or a kernel module, and over plain UDP sockets without privileges. Linux's rdma_rxe and
// RoCE NICs are ordinary peers. The package itself has nothing to import; this is where things are.
//
// # Move bytes
//
// One host offers memory, and another one writes to it. Open a device, open its connection manager, connect:
//
//	dev, err := host.Open(host.Options{})                        // an ib.Device on this machine's network
//	cm, err := rdmacm.Open(dev, rdmacm.Options{})
//	conn, err := cm.Dial(ctx, "192.0.2.1:7471", rdmacm.Config{})  // a connected queue pair
//	err = offer.UnmarshalBinary(conn.PrivateData())               // an ib.RemoteBuffer: what the peer offers
//	mem, err := conn.Memory(offer)
//	n, err := mem.WriteAt(ctx, []byte("RDMA anywhere"), 0)        // an RDMA WRITE; the peer's program takes no part
//
// The whole program, with its other end, is the example of package [github.com/goroce/goroce/roce/rdmacm], and
// examples/write, beside programs for other tasks.
//
// # Packages
//
//   - [github.com/goroce/goroce/ib]: the API. Devices, queue pairs, completion queues and work requests have the names
//     and the meaning of libibverbs. [github.com/goroce/goroce/ib.CQ] waits for completions, and
//     [github.com/goroce/goroce/ib.Completions] iterates over them.
//   - [github.com/goroce/goroce/roce/host]: opens a software device on this machine.
//     [github.com/goroce/goroce/roce/daemon/client] opens one of a daemon, and [github.com/goroce/goroce/roce/rnic] a
//     real NIC. All three are an ib.Device.
//   - [github.com/goroce/goroce/roce/rdmacm]: Dial and Listen by IP address and port, multicast groups.
//     [github.com/goroce/goroce/roce/remote]: a peer's memory as something with ReadAt, WriteAt and atomics.
//   - [github.com/goroce/goroce/roce/rsocket]: net.Conn and net.Listener over RDMA, for net/http and whatever else
//     takes a connection.
//   - [github.com/goroce/goroce/roce], with [github.com/goroce/goroce/roce/link/mem] and
//     [github.com/goroce/goroce/roce/link/wrap]: devices on a network in memory, with faults, for tests.
//   - [github.com/goroce/goroce/qp] and [github.com/goroce/goroce/wire]: the protocol as pure state machines, and
//     its packets.
//   - [github.com/goroce/goroce/roce/trace]: packets for people. Ladder diagrams, as data and as text;
//     [github.com/goroce/goroce/roce/trace/track] says what each packet does to its connection, and
//     [github.com/goroce/goroce/roce/trace/capfile] reads and writes capture files.
//
// # The command
//
// goroced demonstrates, measures, decodes and explains the protocol, and runs programs that use libibverbs:
//
//	go run github.com/goroce/goroce/cmd/goroced@latest demo
package goroce
