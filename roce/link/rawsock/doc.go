// Package rawsock is the link over a packet socket (AF_PACKET). It builds and
// reads Ethernet, IP and UDP headers itself, and so does what plain UDP sockets
// cannot: choose the source port of each run, which spreads load over the paths of
// a network, choose IPv4 identifications, and see those of what it receives. It
// needs CAP_NET_RAW, and an Ethernet interface that holds all its addresses.
//
//	l, err := rawsock.Open([]netip.Addr{addr}, rawsock.Options{})
//
// There is one link, and so one shard, to a device. A fanout group of packet sockets
// would spread the work, but what limits this link is the kernel's part of it: see
// package afxdp, or udp, for more.
//
// A packet socket sees copies of packets; the originals go on to the kernel's UDP,
// which would answer "port unreachable". Guard sockets therefore hold port 4791
// and drop everything. They also keep other programs off the port, as the sockets
// of package udp do.
//
// The kernel does routing and neighbour discovery (package neigh). Frames to
// a host whose MAC address is not known yet wait for it, three seconds at most.
//
// What is sent to multicast groups comes by a second packet socket, which is there
// while any group is joined and shows what leaves the host, too: so a member
// receives its own frames, and those of other programs. The other way round, UDP
// sockets of this host do not hear what a packet socket sends. A plain socket makes
// the host a member, so that switches and the NIC let the frames through; the
// kernel answers none of them.
//
// Speed comes from segmentation, as in package udp: a run leaves as one packet that
// the kernel or the NIC takes apart (PACKET_VNET_HDR with UDP segmentation, Linux
// 6.2), and several share a system call. Linux's own segmentation numbers the
// identifications from the packet's upward, as Run.ID has it. Single frames leave
// without a UDP checksum, segments with one.
//
// A run that never left the machine, between network namespaces say, arrives in one
// piece, and so does what the kernel has merged (GRO): from Linux 6.10 on the guard
// sockets ask for that. PACKET_VNET_HDR tells the frame size, and it becomes one run.
// Traffic of rdma_rxe and NICs is never merged, since its UDP checksum is 0. The
// checksums of packets that have not left the machine are unfinished and not looked
// at. The kernel tells how many packets it dropped for want of buffer, not how many
// frames: in Stats.RxOverflow a run in one piece counts as one.
//
// Several packets share a system call that copies them; there is no ring in shared
// memory (PACKET_RX_RING). A slot of one has to hold the longest run, so that the ring
// outgrows the caches and a run costs half as much again, and a single frame the same;
// TPACKET_V3, which packs frames, shows the last of them a clock tick late.
//
// VLANs: the interface gives and takes tags; frames of other VLANs on the same wire
// are not for its addresses and filtered out.
package rawsock
