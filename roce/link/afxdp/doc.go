// Package afxdp is the link over AF_XDP sockets: an XDP program takes RoCEv2 packets
// out of the driver's hands, before the kernel's stack, and puts them in memory that
// the kernel and we share; what is sent goes the same way back. Like package rawsock
// it builds and reads Ethernet, IP and UDP headers, so source ports and IPv4
// identifications are its own choice. It needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF,
// CAP_IPC_LOCK or 6 to 12 MiB of memory to lock (`ulimit -l`), Linux 5.9, and an
// Ethernet interface that holds all its addresses and has no XDP program yet.
//
//	l, err := afxdp.Open([]netip.Addr{addr}, afxdp.Options{})
//
// # Two ways
//
// The program redirects what is RoCEv2, and to the link's addresses and the
// interface's MAC address. All else passes to the kernel as if nothing was there. When
// an address comes or goes another program takes its place, between two packets.
// Beside its rings the link has the packet socket of rawsock, with the sockets that
// keep the kernel quiet. By it come packets of ours that the program leaves alone:
//
//   - what is to multicast groups, which other programs may have joined, too;
//   - what arrives by queues without a socket (Options.Queues), has a VLAN tag of
//     priority only, or is longer than the link can receive by its rings;
//   - several frames in one piece. A program in the driver sees none. A generic one
//     does, where a sender on this machine leaves segmentation to veth, say; it
//     recognises them by their unfinished UDP checksum, and the packet socket knows
//     where they are to be cut (from Linux 6.2 on; they are lost before).
//
// By it leave what is to groups and what waits for the MAC address of its destination.
// All other frames are copied into the rings, with their headers. Frames that go
// different ways may overtake one another.
//
// Packet captures on this host see what passes the packet socket only. Capture on the
// peer, or by package wrap.
//
// # Modes
//
// Open takes the best that works, and Caps.Note says which that is. A native program
// runs in the driver, a generic one where the stack begins. With zero copy the NIC
// itself reads and writes the shared memory, in copy mode the kernel does. A frame
// that exceeds a chunk of the memory (4096 bytes less 256) takes several chunks, which
// is put together with one more copy; Linux before 6.6 has no such frames, and Caps.MTU
// is less than the interface's then: 3826, so that the path MTU is 2048.
//
// One link serves all queues of the interface, or several divide them up
// ([OpenShards]); a flow, which is what has one source port, stays with one of them. The program ends with the link, and with the process
// whichever way that ends: nothing is pinned.
//
// # veth
//
// As of Linux 6.18: veth runs native programs, in copy mode only. The kernel turns off
// the segmentation offload of the other end meanwhile, TCP's included, so that all
// frames come one by one; TCP between the two gets slower. It needs as many receive
// queues as the other end has send queues (1 and 1 unless somebody says otherwise) or
// the program becomes a generic one, which leaves the offload on. The other end needs
// neither GRO nor a program of its own. One system call sends up to a ring full of
// frames, and the sender's thread does all of the kernel's work, the copy into the
// receiver's memory included.
//
// Files: ring.go and umem.go are the shared memory, sockopt.go what package unix lacks,
// queue.go an AF_XDP socket, program.go the XDP program, open.go puts them together,
// shards.go makes several links of it,
// send.go, headers.go and recv.go move frames, errors.go says what is missing.
package afxdp
