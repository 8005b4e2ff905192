// Package ring holds the queues between an application and a device: send
// queues ([Send]), receive queues ([Recv], also for SRQs) and completion queues
// ([CQ]), each in one flat buffer of bytes. Its API is not stable.
//
// The layout is fixed and versioned, and the same whether the two sides share a
// process or only a memfd. The device formats a buffer with NewSend, NewRecv or
// NewCQ; the application attaches to it with OpenSend, OpenRecv or OpenCQ. The
// tables below describe rings for clients in other languages; docs/abi.md has the doorbells.
//
// A ring has one producer and one consumer. Work goes
//
//	application: Push, Push, ..., Publish   device: Pop, ..., Release
//
// and completions come back
//
//	device: Push, TakeArm                   application: Poll, Arm
//
// Nothing here locks: on each side only one goroutine at a time may call the methods
// of that side. Nothing allocates after creation. The device keeps its own copy of the
// geometry and of every index that it writes, copies each entry out of the buffer once
// and checks the copy, so that invalid data from an application can cause ErrCorrupt
// (invalid indices) or InvalidError (an invalid request) and nothing worse.
//
// # Buffer
//
// The buffer starts on a 64-byte boundary. Numbers have the byte order of the
// machine; u8 to u64 are unsigned, i64 is two's complement. Reserved bytes are
// written as zero and not read. Slot i mod entries holds entry i.
//
//	offset  size                what
//	0       64                  header, written once by the device
//	64      64                  line of the producer's index
//	128     64                  line of the consumer's index
//	192     64                  line of the wake word
//	256     entries*slot_size   slots
//
// # Header
//
//	offset  type  field
//	0       u32   magic       0x474E4952, the letters RING in little-endian memory
//	4       u16   version     1
//	6       u16   kind        1 send, 2 receive, 3 completion
//	8       u32   entries     a power of two, or 0 for a queue that accepts no requests
//	12      u32   slot_size   bytes, a multiple of 64
//	16      u32   max_sge     send and receive: at most 32; completion: 0
//	20      u32   max_inline  send: at most 1024; others: 0
//	24      u32   generation  1; not read: a queue that is resized gets another buffer
//	28      36 bytes          reserved
//
// # Indices and wake word
//
//	offset  type  field      written by   order
//	64      u32   producer   producer     store-release by the producer, load-acquire
//	                                      by the consumer
//	68      u32   overrun    producer     completion: 1 once a completion found no room
//	128     u32   consumer   consumer     store-release by the consumer, load-acquire
//	                                      by the producer
//	192     u32   wake       both         see the handshakes
//
// Indices count entries modulo 2^32 and never wrap at the ring's size. Entries
// from consumer up to, not including, producer are full; their number, producer
// minus consumer modulo 2^32, is at most entries.
//
// # Doorbell handshake: send and receive rings
//
// The wake word is 1 while the device reads the ring only after a doorbell,
// and 0 while it polls the ring. A send ring starts with 1. A receive ring
// starts with 0, as a device reads it when a message arrives.
//
//	application, publishing          device, going to sleep
//	1 write the slots                1 store 1 to wake
//	2 store-release producer         2 full fence
//	3 full fence                     3 load-acquire producer; if there are
//	4 load wake; if it is 1,           entries, store 0 to wake and go on
//	  exchange it with 0; if that    4 sleep until the doorbell rings
//	  returned 1, ring the doorbell
//
// The fences guarantee that at least one side sees the other's store: either the
// device finds the entry in its step 3, or the application finds wake set in its step
// 4. The exchange merges the doorbells of many Publishes into one.
//
// # Event handshake: completion rings
//
// The wake word is 0 if no event is wanted, 1 if the next solicited or failed
// completion shall raise one, 2 if the next completion of any kind shall.
//
//	device, completing                       application, before it blocks
//	1 write the slot                         1 store 2 to wake; or, for solicited
//	2 store-release producer                   ones only, compare-exchange 0 with 1
//	3 full fence                             2 full fence
//	4 load wake; if it is 2, or 1 and the    3 load-acquire producer; if there are
//	  completion is solicited or failed,       entries, poll them
//	  exchange it with 0; if that returned   4 wait for the event
//	  other than 0, raise the event
//
// # Send slot
//
// slot_size is 64 + max(16*max_sge, max_inline), rounded up to a multiple of 64.
//
//	offset  type  field
//	0       u64   id
//	8       u8    opcode          as ibv_wr_opcode
//	9       u8    flags           as ibv_send_flags
//	10      u16   num_sge         0 with the inline flag
//	12      u32   inline_len      0 without the inline flag
//	16      u32   imm             a number, not network byte order
//	        u32   key             SEND with invalidate, LOCAL INVALIDATE: the key to
//	                              revoke; BIND MW: the L_Key of the region
//	20      u32   remote_srq      XRC
//	24      u64   remote_addr     BIND MW: where in the region the window begins
//	32      u32   rkey            BIND MW: the new R_Key of the window
//	36      u32   remote_qpn      UD
//	40      u64   compare
//	        u64   length          BIND MW, FLUSH
//	48      u64   swap            also what FETCH & ADD adds
//	        u64   access          BIND MW: as ibv_access_flags
//	        u64   flush           FLUSH: level + 2^32 * extent
//	56      u32   ah              UD: number of an address handle
//	60      u32   remote_qkey     UD
//	64            num_sge SGEs, or inline_len bytes of payload
//
// # Receive slot
//
// slot_size is 16 + 16*max_sge, rounded up to a multiple of 64.
//
//	offset  type  field
//	0       u64   id
//	8       u16   num_sge
//	10      6 bytes               reserved
//	16            num_sge SGEs
//
// # SGE
//
//	offset  type  field
//	0       u64   addr
//	8       u32   length
//	12      u32   lkey
//
// # Completion slot
//
// slot_size is 64. The device may fill fewer slots than there are: as many as were asked for.
//
//	offset  type  field
//	0       u64   id
//	8       u8    status          as ibv_wc_status
//	9       u8    opcode          as ibv_wc_opcode
//	10      u8    flags           as ibv_wc_flags
//	11      u8    sl              receives of UD: 9 for a packet of IPv6, 10 for one of IPv4
//	12      u32   vendor_err
//	16      u32   byte_len
//	20      u32   imm
//	24      u32   invalidated_key
//	28      u32   qpn
//	32      u32   src_qp
//	36      u32   reserved
//	40      i64   timestamp       nanoseconds on the device's clock
//	48      16 bytes              reserved
package ring
