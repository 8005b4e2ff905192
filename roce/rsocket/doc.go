// Package rsocket provides stream sockets over RDMA: net.Conn and net.Listener with the rsockets protocol of librdmacm.
// The peer is another goroce, or a C program on rsockets: rstream, riostream, rcopy, anything under librspreload.
//
//	l, err := rsocket.Listen(ctx, cm, ":7471", rsocket.Options{})
//	c, err := l.Accept()
//
//	c, err := rsocket.Dial(ctx, cm, "192.0.2.1:7471", rsocket.Options{})
//	c.Write(b)
//
// # How data is transferred
//
// An RDMA WRITE needs memory that the peer has offered beforehand. Each end has a receive buffer, which it offers in
// halves, and a target SGL: a table of two entries, in which the peer writes where its free halves are. Every message
// is an RDMA WRITE with immediate: the payload goes into the offered memory, and the 32-bit immediate, which takes a
// receive but no memory, tells the other end what was written.
//
//	A                                                            B
//	|-- REQ, private data: record ------------------------------>|  my target SGL is there; write the first
//	|<------------------------------ REP, private data: record --|  64 KiB there; I take 384 messages
//	|                                                            |
//	|-- WRITE entry 1 of B's SGL, credits 384 ------------------>|  my second half is there
//	|<------------------ WRITE entry 1 of A's SGL, credits 384 --|
//	|                                                            |
//	|-- WRITE "hello" to B's first half, data 5 ---------------->|  Read returns "hello"
//	|-- WRITE 65531 bytes behind it, data 65531 ---------------->|  the first half is full
//	|-- WRITE 4096 bytes to B's second half, data 4096 --------->|  Read has emptied the first half:
//	|<------------------ WRITE entry 0 of A's SGL, credits 387 --|  here it is again
//	|                                                            |
//	|-- WRITE of nothing, control: shutdown -------------------->|  Read returns io.EOF; Write goes on
//	|<------------------ WRITE of nothing, control: disconnect --|  neither end sends any more
//	|<----------------------------------------------------- DREQ-|
//
// The record tells A the address of B's SGL (in which A offers its own halves), B's first half, the credits, and B's
// byte order, which A uses for what it writes into B's tables. An entry is used up before the next one is read, and no
// message extends beyond an entry, so the receive buffer fills like a ring.
//
// # Flow control
//
// Sending data needs space and credits. Space is the unused rest of the current entry. Credits are receives at the
// peer: data messages are counted modulo 2^16, and the immediate of a credit update is the count at which to stop. An
// end sends an update with an entry when half of its buffer has been read, and one without an entry when half of its
// receives have been used. Credit updates and control messages need no credits, otherwise two ends could wait for each
// other; four entries of the send queue are reserved for them. If the peer has no receive left, its RNR NAKs delay them
// for as long as it takes.
//
// This package posts a receive again as soon as its message is handled, and counts it as free from then on; rsocket.c
// does so when the application has read the bytes.
//
// # Ends
//
// CloseWrite sends a shutdown message. Close sends a disconnect message and, once everything is acknowledged, the
// connection manager's DREQ. A DREQ alone ends the stream, too: it is all that a killed program leaves behind. If the
// connection ends without a DREQ it was broken, and Read returns an error.
//
// # Mapped buffers
//
// [Conn.Map] lets the peer write directly into a buffer of this end, with [Conn.WriteAt], or riowrite in C. The owner
// of the buffer WRITEs an entry (offset, address, key, length) into the peer's iomap, a table behind its target SGL,
// with an immediate that has the index of the entry. WriteAt then is a WRITE without immediate, which the owner does
// not notice; a byte on the stream afterwards tells it that the data is there.
//
// # In the package
//
// record.go and message.go have the formats on the wire. inbound.go and outbound.go are the state of the two
// directions, without IO. progress.go handles completions, on a goroutine of the connection or on those that call Read
// and Write. endpoint.go creates memory and CQ, dial.go and listen.go connect them.
package rsocket
