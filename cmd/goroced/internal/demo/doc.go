// Package demo demonstrates RoCEv2 without any hardware: two hosts in one process, on two loopback addresses,
// communicate through ordinary UDP sockets.
//
// [Run] has two parts, each with a new pair of devices. The first is a tour: SEND, RDMA WRITE, RDMA READ and atomics
// one after the other, with every packet recorded and every byte checked. The second is a measurement, where nothing is
// recorded. [Report] has the results of both; its WriteText prints them with ladder diagrams.
//
// With a daemon ([Options.Daemon]) the hosts are two of its clients, and the packets are those of a capture on its
// admin socket. Users who may not capture get no diagrams.
//
// Files: demo.go runs the demonstration, pair.go makes and connects the hosts, daemon.go those of a daemon, tour.go and
// measure.go are the two parts, record.go collects packets, ladder.go draws them, report.go prints.
package demo
