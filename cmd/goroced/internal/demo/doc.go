// Package demo shows RoCEv2 at work without any hardware: two hosts in one
// process, on two loopback addresses, that talk through ordinary UDP sockets.
//
// [Run] does it in two parts, each with a fresh pair of devices. First a tour:
// SEND, RDMA WRITE, RDMA READ and atomics one after the other, with every packet
// recorded and every byte checked. Then a measurement, with nothing in the way.
// The [Report] holds both; its WriteText tells the story with ladder diagrams.
//
// Through a daemon ([Options.Daemon]) the hosts are two of its clients, and the packets
// are those of a capture on its admin socket. Who may not capture gets no diagrams.
//
// Files: demo.go runs, pair.go makes and connects the hosts, daemon.go those of a
// daemon, tour.go and
// measure.go are the two parts, record.go collects packets, ladder.go draws them,
// report.go writes.
package demo
