// Package afxdp is the link over AF_XDP sockets: an XDP program takes RoCEv2 packets from the driver, before the
// kernel's stack sees them, and puts them into memory that this process shares with the kernel; sent frames take the
// same way back. Like package rawsock it builds and decodes Ethernet, IP and UDP headers, so it can choose source ports
// and IPv4 identifications. It needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, CAP_IPC_LOCK or 6 to 12 MiB of memory to
// lock (`ulimit -l`), Linux 5.9, and an Ethernet interface that has all addresses of the link and no XDP program yet.
//
//	l, err := afxdp.Open([]netip.Addr{addr}, afxdp.Options{})
//
// # Two ways of a packet
//
// The program redirects RoCEv2 packets to the link's addresses and the interface's MAC address. All other packets pass
// to the kernel as usual. When an address comes or goes, the program is replaced by another one, between two packets.
// Beside its rings the link has the packet socket of rawsock, with the sockets that keep the kernel from answering. It
// receives those packets for this link that the program does not redirect:
//
//   - what is to multicast groups, which other programs may have joined, too;
//   - what arrives by queues without a socket (Options.Queues), has a VLAN tag of
//     priority only, or is longer than the link can receive by its rings;
//   - several frames in one piece. A program in the driver sees none. A generic one
//     does, where a sender on this machine leaves segmentation to veth, say; it
//     recognises them by their unfinished UDP checksum, and the packet socket knows
//     where they are to be cut (from Linux 6.2 on; they are lost before).
//
// Frames to groups, and those that wait for the MAC address of their destination, are sent by the packet socket. All
// other frames are copied into the rings, with their headers. Frames of the two ways may overtake one another.
//
// Packet captures on this host see only the packet socket's frames. Capture on the peer, or with package wrap.
//
// # Modes
//
// Open chooses the best mode that works; Caps.Note says which. A native program runs in the driver, a generic one at
// the start of the kernel's stack. In zero-copy mode the NIC itself reads and writes the shared memory, in copy mode
// the kernel does. A frame that is longer than a chunk of the memory (4096 bytes less 256) takes several chunks, and
// one more copy on reception. Linux before 6.6 does not support that; then Caps.MTU is less than the interface's: 3826,
// so that the path MTU is 2048.
//
// One link serves all queues of the interface, or several links share them ([OpenShards]). All frames of a flow, which
// has one source port, use the same link. The program is removed when the link is closed, or the process ends in any
// way: nothing is pinned.
//
// # veth
//
// As of Linux 6.18, veth runs native programs in copy mode only. While one is attached the kernel disables segmentation
// offload of the other end, including TCP's, so that frames come one by one, and TCP between the two gets slower. A
// native program needs as many receive queues as the other end has send queues (1 and 1 by default); otherwise the
// program is a generic one, and the offload stays enabled. The other end needs neither GRO nor a program of its own.
// One system call sends up to a ring full of frames, and the sender's thread does all of the kernel's work, including
// the copy into the receiver's memory.
//
// Files: ring.go and umem.go are the shared memory, sockopt.go has what package unix lacks, queue.go an AF_XDP socket,
// program.go the XDP program. open.go opens a link, shards.go several. send.go, headers.go and recv.go move frames.
// errors.go explains what is missing.
package afxdp
