// Package layers has the RoCEv2 headers as gopacket layers, for dissection, tools
// and tests. Importing it registers them on UDP port 4791, so that
//
//	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
//
// comes apart as Ethernet, IPv4, UDP, BTH, extension headers, Payload, ICRC. The
// opcode in the [BTH] says which extension headers there are: [XRCETH], [DETH],
// [FETH], [RETH], [AtomicETH], [AETH], [AtomicAckETH], [ImmDt], [IETH]. [Payload]
// is left out where there is none; management datagrams are plain payload. [ICRC]
// is always last. [CheckICRC] verifies it, [ComputeICRC] computes one.
//
// For a gopacket.DecodingLayerParser, tell each layer which BTH it follows:
//
//	var bth layers.BTH
//	var reth layers.RETH
//	reth.Follow(&bth)
//
// To write a packet, serialize BTH, its extension headers, Payload and ICRC in
// this order. With FixLengths, a Payload that follows the BTH is padded and sets
// the BTH's pad count. With ComputeChecksums, a BTH that was told its outer headers
// by SetOuter fills in the ICRC.
//
// The package decodes with code of its own rather than with package wire, slowly
// and plainly, so that each can be tested against the other: [Verify] does so with
// one frame. The conformance suite passes every frame to it that its software devices
// send and receive, the demonstration's test its capture.
package layers
