// Package wire encodes and decodes RoCEv2 packets. It does no IO, keeps no state and allocates nothing.
// Its API is not stable.
//
// A packet on Ethernet, outside in:
//
//	Ethernet | IPv4 or IPv6 | UDP, port 4791 | BTH | extension headers | payload | pad | ICRC
//	\______________ Outer _________________/   \______________ Packet _____________/
//	\________________________________ Frame ______________________________________________/
//
// [Opcode], the first byte of the BTH, determines everything that follows: which extension headers there are, whether
// there is payload, and which part of its message the packet is. opcode.go has a table of all opcodes.
//
// [Packet] has the transport headers and the payload: [BTH], [RETH], [AETH], [AtomicETH], [DETH], [FETH], and the
// headers of one field as numbers. Decode reads them, PutHeaders and AppendHeaders write them. [Syndrome] is the AETH's
// first byte with its codes for credits, delays and errors.
//
// [Outer] has the fields of the IP and UDP headers. Its methods ICRC, Seal and Check compute the invariant CRC. SolveID
// and [Reseal] deal with the IPv4 identification: the ICRC covers it, though a UDP socket can neither choose nor see
// it.
//
// A datagram to QP 1 carries a MAD, a management datagram: [MADHeader] and, for the connection manager, one of its
// messages, [REQ] to [SIDRREP]. All fields have fixed offsets, so Decode accepts any MAD; PrivateData and Info are then
// parts of it. Put writes everything that follows the MAD header, with reserved bits 0. Numbers that are too large for
// their field keep the low bits, and data that are too long are cut, so check the length of what applications pass. The
// data must not overlap the MAD, except where Decode of the same message has found them. [CMHeader] is the header that
// rdma_cm puts before the private data of applications, [ib.PortSpace] its part of a service ID.
//
// [Frame] is for users of whole frames: packet sockets, XDP, captures.
//
// Decoders accept any bytes. Their errors are a [HeaderError], which names the header and wraps one of the sentinels in
// errors.go. The errors are allocated once, so refusing a packet does not allocate.
//
// "IBTA" in comments is the InfiniBand Architecture Specification, volume 1. A17 and A19 are its annexes on RoCEv2 and
// memory placement, CA17-1 and the like are compliance statements of annex A17.
package wire
