// Package pingpong is rdma-core's ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong
// and ibv_srq_pingpong: two programs that SEND one message to and fro. Either end
// may be the C tool on a real RNIC or on rdma_rxe.
//
// [Run] runs one end of a [Service] on a given device. The ends first exchange the addresses of their queue pairs over
// TCP (exchange.go has the format), then the messages over RoCE. Output, attributes of the queue pairs and data are
// those of the C tools (v44), with two additions that the C tools do not notice: with Options.Check each end checks
// every byte of each message, and at the end two goroce ends with RC queue pairs wait for one another, so that the loss
// of the last ACK fails neither.
//
// Two ends of goroce tell each other their options in addition, and refuse what does not fit. [Serve] runs a server
// that takes such clients in turn, with the options that each has.
//
// Files: pingpong.go runs the program, service.go has a table of the differences between services, options.go checks
// arguments, exchange.go is the exchange over TCP, terms.go what goroce ends tell each other before, serve.go the
// server that stays, gid.go chooses the address, endpoint.go makes and connects the queue pairs, loop.go sends and
// receives, memory.go has the layout of messages, pattern.go their data.
package pingpong
