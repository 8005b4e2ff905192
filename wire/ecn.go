package wire

// ECN is explicit congestion notification: the two low bits of the IP header's traffic class (RFC 3168, 5).
type ECN uint8

// Values of ECN, with the names of RFC 3168. Only CE is set on the way.
const (
	NotECT ECN = iota // the sender does not take part
	ECT1              // the sender takes part
	ECT0              // likewise
	CE                // a router or switch had a long queue: congestion experienced
)

// ECNOf returns the ECN bits of a traffic class.
func ECNOf(trafficClass uint8) ECN { return ECN(trafficClass & 3) }
