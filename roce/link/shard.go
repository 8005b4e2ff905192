package link

import "github.com/goroce/goroce/ib"

// MaxShards is how many links one device may run on.
const MaxShards = 16

// ShardOf returns which of n links, a power of two, should receive the packets for a QP: that of the QP's shard. It is
// the low bits of the QP number; the general services QP belongs to the first shard.
//
// A link whose hardware or kernel cannot select by QP number delivers to any of the n. The device passes such packets
// to the right shard, which costs a copy.
func ShardOf(qpn ib.QPN, n int) int {
	if qpn == ib.QPNGSI {
		return 0
	}
	return int(qpn) & (n - 1)
}

// FrameShard returns ShardOf for the destination QP of a frame.
func FrameShard(frame []byte, n int) int {
	if len(frame) < 8 {
		return 0
	}
	return ShardOf(ib.QPN(frame[5])<<16|ib.QPN(frame[6])<<8|ib.QPN(frame[7]), n) // IBTA 9.2.1
}
