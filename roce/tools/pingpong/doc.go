// Package pingpong is rdma-core's ibv_rc_pingpong: two programs that SEND one
// message to and fro over a reliable connection. Either end may be the C tool on a
// real RNIC or on rdma_rxe.
//
// [Run] plays one end on a given device. Both ends first meet over TCP and tell
// one another where their queue pairs are (exchange.go has the format), then the
// messages go over RoCE. What is printed, the queue pair's settings and the data
// are the C tool's (v44), with two additions that it does not notice: with
// Options.Check every byte is checked, at both ends and each time, and at the end
// two goroce ends wait for one another, so that no lost ACK fails the slower one.
//
// Files: pingpong.go runs, options.go checks arguments, exchange.go is the meeting
// over TCP, gid.go chooses the address, endpoint.go makes and connects the queue
// pair, loop.go plays, pattern.go knows the data.
package pingpong
