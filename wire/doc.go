// Package wire turns the bytes of RoCEv2 packets into values and back. It does
// no IO, keeps no state and allocates nothing.
//
// A packet on Ethernet, outside in:
//
//	Ethernet | IPv4 or IPv6 | UDP, port 4791 | BTH | extension headers | payload | pad | ICRC
//	\______________ Outer _________________/   \______________ Packet _____________/
//	\________________________________ Frame ______________________________________________/
//
// [Opcode], the first byte of the BTH, says everything about the shape of what
// follows: which extension headers there are, whether there is payload, where in
// its message the packet stands. It is a row of one table (opcode.go).
//
// [Packet] holds the transport headers and the payload: [BTH], [RETH], [AETH],
// [AtomicETH], [DETH], [FETH] and the small ones as plain numbers. Decode reads
// them, PutHeaders and AppendHeaders write them. [Syndrome] is the AETH's first
// byte with its codes for credits, delays and errors.
//
// [Outer] is what of the IP and UDP headers a RoCE packet depends on. Its ICRC,
// Seal and Check compute the invariant CRC; SolveID and [Reseal] deal with the
// IPv4 identification, which the ICRC covers though a UDP socket can neither
// choose nor see it.
//
// A datagram to QP 1 carries a MAD, a management datagram: [MADHeader], and for the
// connection manager one of its messages, [REQ] to [SIDRREP]. All their fields have
// fixed places, so Decode takes any MAD; PrivateData and Info are parts of it. Put
// writes all that follows the MAD header, reserved bits as zero. Numbers keep the
// low bits that their field has, and data longer than the field are cut: check the
// length of what applications give. They must not overlap the MAD, except where
// Decode of the same message found them. [CMHeader] is what rdma_cm puts before the
// private data of applications, [PortSpace] its part of a service ID.
//
// [Frame] is for whoever holds whole frames: packet sockets, XDP, captures.
//
// Decoders accept any bytes. What they refuse they report as one of the
// sentinels in errors.go, wrapped in a [HeaderError] that names the header;
// these are constant values, so that refusing does not allocate either.
//
// "IBTA" in comments is the InfiniBand Architecture Specification, volume 1; A17
// and A19 are its annexes on RoCEv2 and memory placement, CA17-1 and the like
// their numbered rules.
package wire
