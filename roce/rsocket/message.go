package rsocket

// Messages are the 32-bit immediates of RDMA WRITEs: a type in the top 3 bits, a
// value in the others.
const (
	valueBits = 29
	valueMask = 1<<valueBits - 1
)

// msgType says what a message means.
type msgType uint8

// Types of messages. The others are reserved.
const (
	msgData    msgType = 0 // the value's number of bytes was written to the target
	msgCredits msgType = 4 // the value is the new limit of data messages; a target SGL entry may have been written
	msgMap     msgType = 6 // the iomap entry of that index was written
	msgControl msgType = 7 // one of the values below
)

// Control messages.
const (
	ctrlDisconnect = 0 // the sender sends and receives no more
	ctrlKeepAlive  = 1
	ctrlShutdown   = 2 // the sender sends no more
)

func message(t msgType, value uint32) uint32 { return uint32(t)<<valueBits | value&valueMask }

func splitMessage(imm uint32) (msgType, uint32) { return msgType(imm >> valueBits), imm & valueMask }

// Work request IDs: what a completion gives back.
type sendKind uint8

const (
	sentData    sendKind = iota // a data slot, and bytes of the send buffer
	sentControl                 // a control slot
	received                    // a receive
)

func workID(k sendKind, n int) uint64 { return uint64(k)<<56 | uint64(n) }

func splitID(id uint64) (sendKind, int) { return sendKind(id >> 56), int(id & (1<<56 - 1)) }
