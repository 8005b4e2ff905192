// Package rawsock is the link over a packet socket (AF_PACKET). It builds and
// reads Ethernet, IP and UDP headers itself, and so does what plain UDP sockets
// cannot: choose the source port of each run, which spreads load over the paths of
// a network, choose IPv4 identifications, and see those of what it receives. It
// needs CAP_NET_RAW, and an Ethernet interface that holds all its addresses.
//
//	l, err := rawsock.Open([]netip.Addr{addr}, rawsock.Options{})
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
// Frames come out one by one whatever the kernel makes of them. Between network
// namespaces of one machine a run that a UDP socket sent with UDP_SEGMENT passes
// in one piece; PACKET_VNET_HDR tells its frame size, and it becomes one run. The
// UDP checksums of packets that have not left the machine are unfinished and not
// looked at. VLANs: the interface gives and takes tags; frames of other VLANs on
// the same wire are not for its addresses and filtered out.
package rawsock
