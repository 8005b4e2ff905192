// Package rsocket is stream sockets over RDMA: net.Conn and net.Listener that
// speak the rsockets protocol of librdmacm. The peer is another goroce, or a C
// program on rsockets: rstream, riostream, rcopy, anything under librspreload.
//
//	l, err := rsocket.Listen(ctx, cm, ":7471", rsocket.Options{})      c, err := rsocket.Dial(ctx, cm, "192.0.2.1:7471", rsocket.Options{})
//	c, err := l.Accept()                                               c.Write(b)
//
// # How bytes get across
//
// RDMA writes into memory that the peer has offered, so the question is who offers
// what when. Each end has a receive buffer, which it offers in halves, and a target
// SGL: a table of two entries, in which the peer writes where its free halves are.
// Everything is an RDMA WRITE with immediate. The payload goes where it belongs; the
// 32-bit immediate tells the other side what happened, and needs no memory there,
// only a receive.
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
// The record tells A the address of B's SGL (for what A offers), B's first half, the
// credits, and B's byte order, in which A writes to tables. An entry is used up
// before the next is looked at, and no message crosses its end, so the receive
// buffer fills like a ring.
//
// # Flow control
//
// Sending data needs space and credits. Space is what is left of the entry. Credits
// are receives at the peer: a data message is numbered, modulo 2^16, and the
// immediate of a credit update is the number to stop before. An update comes when
// half of the buffer was read, with an entry, or when half of the queue was used,
// without. Credit updates and control messages need no credits, else two ends could
// wait for each other; four entries of the send queue are set aside for them. Where
// the peer has no receive left its RNR NAKs delay them, for ever if need be.
//
// This package posts receives again as soon as their messages are handled and counts
// them as free then; rsocket.c counts them when the application has read the bytes.
//
// # Ends
//
// CloseWrite sends a shutdown message, Close a disconnect message and, once all is
// acknowledged, the connection manager's DREQ, which is an end of the stream, too, if
// it comes alone: a program that is killed leaves one behind. Without a DREQ the
// connection was broken, and Read says so.
//
// # Mapped buffers
//
// [Conn.Map] lets the peer write straight into a buffer of ours: by
// [Conn.WriteAt], or riowrite in C. The owner WRITEs an entry (offset, address, key,
// length) into the peer's iomap, a table behind its target SGL, with an immediate
// that names the entry. WriteAt then is a WRITE without immediate. Nobody is told of
// it: a byte on the stream afterwards says that it is there.
//
// # In the package
//
// record.go and message.go have the wire. inbound.go and outbound.go are the state of
// the two directions, without IO; progress.go moves it on as completions come, on a
// goroutine of the connection or on whichever calls Read and Write. endpoint.go makes
// the memory, dial.go and listen.go connect it.
package rsocket
