package rsocket

// Messages are the 32-bit immediates of RDMA WRITEs: a type in the top 3 bits, and a value.
const (
	valueBits = 29
	valueMask = 1<<valueBits - 1
)

// msgType is the type of a message.
type msgType uint8

// Types of messages. Others are reserved.
const (
	msgData    msgType = 0 // value bytes were written to the target
	msgCredits msgType = 4 // the new limit of data messages; an entry of the target SGL may have been written
	msgMap     msgType = 6 // the iomap entry with index value was written
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

// workKind is a part of the ID of a work request: what its completion releases.
type workKind uint8

const (
	sentData    workKind = iota // an entry of the send queue for data, and bytes of the send buffer
	sentControl                 // an entry for control
	received                    // a receive
)

func workID(k workKind, n int) uint64 { return uint64(k)<<56 | uint64(n) }

func splitID(id uint64) (workKind, int) { return workKind(id >> 56), int(id & (1<<56 - 1)) }
