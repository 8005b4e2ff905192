// Package udp is the link over plain UDP sockets. It needs no privilege: any user
// can speak RoCEv2 through it.
//
//	l, err := udp.Open([]netip.Addr{addr}, udp.Options{})
//
// There is one socket for each local address, bound to port 4791. A socket cannot compute ICRCs, so the kernel must
// send headers that can be predicted: the sockets are not connected, and their path MTU discovery is in PROBE mode.
// Linux then sends every IPv4 packet with "don't fragment" and identification 0, and numbers the segments of a run 0,
// 1, 2 ... (ip_select_ident and inet_gso_segment). Caps.ID says which of the two rules applies.
//
// Speed comes from segmentation: a run leaves as one message (UDP_SEGMENT) and
// arrives as one (UDP_GRO); several runs share a system call (sendmmsg,
// recvmmsg). Traffic of rdma_rxe and NICs is never merged, since its UDP checksum
// is 0, and arrives a frame at a time.
//
// Each joined multicast group has a socket of its own, bound to the group, on each interface of the link. If several
// programs of a host are members, each receives a frame, whichever program sends it. IPv6 groups need a route, which
// Linux has for every interface but loopback.
//
// A device with several shards has several links ([OpenShards]), whose sockets share the port (SO_REUSEPORT). A classic
// BPF program, which any user may attach, makes the kernel choose the socket by the destination QP.
//
// ICMP errors end attempts to connect to a peer whose port is closed ([Options].OnError); packets of connections are
// sent again as after any other loss.
//
// A socket cannot choose the source port or the IPv6 flow label (the kernel chooses a label, which the ICRC does not
// cover), and cannot see the IPv4 identification of what it receives.
//
// Files: open.go opens the sockets, offload.go detects segmentation offload, send.go and recv.go move runs, shards.go
// shares the port, local.go adds and removes addresses, group.go joins groups, icmp.go reads ICMP errors, device.go
// queries the interface, route.go chooses it where two are in one subnet.
package udp
