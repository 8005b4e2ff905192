// Package layers has the RoCEv2 headers as gopacket layers. Importing it registers them on UDP port 4791, so that
//
//	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
//
// decodes Ethernet, IPv4, UDP, BTH, extension headers, Payload, ICRC. The opcode in the [BTH] determines the extension
// headers: [XRCETH], [DETH], [FETH], [RETH], [AtomicETH], [AETH], [AtomicAckETH], [ImmDt], [IETH]. An empty [Payload]
// is left out; management datagrams are plain payload. [ICRC] is always last. [CheckICRC] verifies it, [ComputeICRC]
// computes one.
//
// With a gopacket.DecodingLayerParser, tell each layer to which BTH it belongs:
//
//	var bth layers.BTH
//	var reth layers.RETH
//	reth.Follow(&bth)
//
// To write a packet, serialize BTH, its extension headers, Payload and ICRC, in this order. With FixLengths, a Payload
// that follows the BTH is padded, and sets the BTH's pad count. With ComputeChecksums, a BTH whose outer headers have
// been set by SetOuter writes the ICRC.
//
// The package does not use the decoders of package wire but simple and slow ones of its own, so that each package can
// be tested against the other: [Verify] does that for one frame. The conformance suite calls it for every frame that
// its software devices send and receive, the demonstration's test for its capture.
package layers
