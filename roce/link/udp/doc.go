// Package udp is the link over plain UDP sockets. It needs no privilege: any user
// can speak RoCEv2 through it.
//
//	l, err := udp.Open([]netip.Addr{addr}, udp.Options{})
//
// There is one socket per local address, bound to port 4791, which comes and goes with
// it. A socket knows nothing of ICRCs, so the driver's task is to make the kernel send
// headers that can be foreseen: sockets are never connected and their path MTU
// discovery is in PROBE mode, for then Linux sends every IPv4 packet with "don't
// fragment" and identification 0, and numbers the segments of a run 0, 1, 2 ...
// (ip_select_ident and inet_gso_segment). Caps.ID says which of the two rules holds.
//
// Speed comes from segmentation: a run leaves as one message (UDP_SEGMENT) and
// arrives as one (UDP_GRO); several runs share a system call (sendmmsg,
// recvmmsg). Traffic of rdma_rxe and NICs is never merged, since its UDP checksum
// is 0, and arrives a frame at a time.
//
// Each multicast group that is joined has a socket of its own, bound to the group,
// on each interface of the link. On a host with several members every one receives
// a frame, whichever program sends it. Groups of IPv6 need a route, which Linux
// makes for every interface but loopback.
//
// A device with several shards has several links ([OpenShards]), whose sockets share
// the port (SO_REUSEPORT). A classic BPF program, which anybody may attach, has the
// kernel choose the socket by the destination QP.
//
// What a socket cannot do: choose the source port, choose an IPv6 flow label (the
// kernel makes one up, and the ICRC does not cover it), or see the identification
// of what it receives.
//
// Files: open.go makes the sockets, offload.go finds out about segmentation,
// send.go and recv.go move runs, shards.go shares the port, local.go adds and removes
// addresses, group.go joins groups, device.go knows the interface.
package udp
