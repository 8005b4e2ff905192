// Package perf is linux-rdma's perftest: ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw and the corresponding
// ib_*_lat. It measures how many messages two hosts can transfer, or how long a message takes. Either end may be the C
// tool on a real RNIC or on rdma_rxe.
//
// [Run] runs one end of a [Test] of an [Op] on a given device. The ends first connect over TCP, exchange the addresses
// of queue pairs and memory, and swap messages again when they have to wait for one another; the data goes over RoCE.
// With Options.CM they use a connection by rdma_cm instead, which carries the same messages as SENDs, and connect the
// queue pairs by it. An end that waits there for a peer whose host has died waits until it is interrupted, as the C
// tools do. Exchange and text output are those of perftest 4.5 (its own version number is 6.06, that of Debian 12).
// Versions from 5.70 on are compatible, until those that negotiate more; only 6.06 is tested.
//
// Two ends of goroce tell each other their options in addition, after their versions, and refuse what does not fit.
// [Serve] runs a server that takes such clients in turn, with the options that each has.
//
// Differences from the C tools: completions are requested so often that the send queue never runs empty (CQMod), the
// peak bandwidth is that of the best stretch of one queue depth, latencies are from a histogram of three significant
// digits, the JSON is valid, receivers of unreliable services survive losses and count them, and an end whose peer has
// disappeared fails instead of waiting for ever.
//
// Files: perf.go runs a test, test.go has a table of the differences between tests, options.go checks arguments.
// meeting.go defines how ends connect, tcp.go and cm.go are the two ways, exchange.go and binary.go their messages,
// session.go the order of messages, terms.go the options that goroce ends tell each other, serve.go the server that
// stays. endpoint.go makes and connects the queue pairs, cmconnect.go by rdma_cm, gid.go
// chooses the address, memory.go has the layout of messages. stream.go posts requests, transfer.go measures bandwidth,
// volley.go latency, phase.go divides a run of a given duration, patience.go waits. report.go is the result, print.go
// its text.
package perf
