// Package rawsock is the link over a packet socket (AF_PACKET). It builds and decodes Ethernet, IP and UDP headers
// itself. So, unlike a plain UDP socket, it can choose the source port of each run, which spreads load over the paths
// of a network, it can choose IPv4 identifications, and it sees those of received frames. It needs CAP_NET_RAW, and an
// Ethernet interface that has all its addresses.
//
//	l, err := rawsock.Open([]netip.Addr{addr}, rawsock.Options{})
//
// A device has one such link, so one shard. A fanout group of packet sockets would distribute the work, but the limit
// is the kernel's part of it; packages afxdp and udp support several shards.
//
// A packet socket gets copies of packets; the originals go to the kernel's UDP, which would answer "port unreachable".
// Guard sockets therefore occupy port 4791 and drop everything. They also keep other programs off the port, like the
// sockets of package udp.
//
// The kernel does routing and neighbour discovery (package neigh). Frames to a host whose MAC address is not known yet
// wait for it, at most three seconds.
//
// Frames to multicast groups are received by a second packet socket, which is open while any group is joined. It also
// gets what this host sends, so a member receives its own frames, and those of other programs. But UDP sockets of this
// host do not receive what a packet socket sends. A plain socket makes the host a member of the group, so that switches
// and the NIC forward the frames; the kernel answers none of them.
//
// For speed the link uses segmentation offload, like package udp: a run is sent as one packet, which the kernel or the
// NIC cuts into frames (PACKET_VNET_HDR with UDP segmentation, Linux 6.2), and several runs share a system call. Linux
// numbers the identifications from that of the packet on, as Run.ID requires. Single frames are sent without a UDP
// checksum, segments with one.
//
// A run that has not left the machine, between network namespaces for instance, is received in one piece, and so is
// what the kernel has merged (GRO): since Linux 6.10 the guard sockets ask for that. PACKET_VNET_HDR tells the frame
// size, so it becomes one run. Traffic of rdma_rxe and NICs is never merged, since its UDP checksum is 0. Packets that
// have not left the machine have incomplete checksums, which are not checked. The kernel counts packets that it has
// dropped for lack of buffers, not frames: in Stats.RxOverflow a run in one piece counts as one.
//
// Packets are copied, several by one system call; there is no ring in shared memory (PACKET_RX_RING). A slot of a ring
// would have to hold the longest run, so that the ring exceeds the caches: a run would take 1.5 times as long, and a
// single frame as long as now. TPACKET_V3 packs frames, but delivers the last of them a clock tick late.
//
// VLANs: the interface adds and removes tags; frames of other VLANs on the same wire are not for its addresses and are
// filtered out.
package rawsock
