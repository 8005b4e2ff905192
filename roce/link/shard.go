package link

import "github.com/goroce/goroce/ib"

// MaxShards is how many links one device may run on.
const MaxShards = 16

// ShardOf returns which of n links, a power of two, the packets for a QP should
// arrive by: that of the shard of the device to which the QP belongs. The low bits of
// the QP number say so; the general services QP belongs to the first.
//
// Links whose hardware or kernel cannot look at QP numbers deliver to any of the n.
// Devices pass such packets on, at the price of a copy.
func ShardOf(qpn ib.QPN, n int) int {
	if qpn == ib.QPNGSI {
		return 0
	}
	return int(qpn) & (n - 1)
}

// FrameShard is ShardOf for the destination QP of a frame.
func FrameShard(frame []byte, n int) int {
	if len(frame) < 8 {
		return 0
	}
	return ShardOf(ib.QPN(frame[5])<<16|ib.QPN(frame[6])<<8|ib.QPN(frame[7]), n) // IBTA 9.2.1
}
