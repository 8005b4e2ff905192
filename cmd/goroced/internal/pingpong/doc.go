// Package pingpong is rdma-core's ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong
// and ibv_srq_pingpong: two programs that SEND one message to and fro. Either end
// may be the C tool on a real RNIC or on rdma_rxe.
//
// [Run] plays one end of a [Service] on a given device. Both ends first meet over
// TCP and tell one another where their queue pairs are (exchange.go has the
// format), then the messages go over RoCE. What is printed, the queue pairs'
// settings and the data are the C tools' (v44), with two additions that they do not
// notice: with Options.Check every byte is checked, at both ends and each time, and
// at the end two goroce ends wait for one another, so that no lost ACK fails the
// slower one.
//
// Files: pingpong.go runs, service.go is the table of what tells the services
// apart, options.go checks arguments, exchange.go is the meeting over TCP, gid.go
// chooses the address, endpoint.go makes and connects the queue pairs, loop.go
// plays, memory.go says where messages lie, pattern.go knows the data.
package pingpong
