// Package perf is linux-rdma's perftest: ib_send_bw, ib_write_bw, ib_read_bw,
// ib_atomic_bw and their ib_*_lat sisters. It measures how many messages pass
// between two hosts, or how long one takes. Either end may be the C tool on a real
// RNIC or on rdma_rxe.
//
// [Run] plays one end of a [Test] of an [Op] on a given device. Both ends first
// meet over TCP, tell one another where their queue pairs and memory are, and swap
// messages again wherever they have to keep in step; then the data goes over RoCE.
// With Options.CM they meet on a connection by rdma_cm instead, and connect the queue
// pairs by it: the same words, as SENDs. An end that waits there for a peer whose host
// is gone, and cannot say so any more, waits until it is interrupted, as the C tools do.
// The meeting and the text on the output are those of perftest 4.5 (its own version
// number is 6.06, that of Debian 12). Versions from 5.70 on meet in the same way,
// until those that negotiate more; only 6.06 is tested.
//
// What differs from the C tools: a completion is asked for often enough that the
// send queue never runs dry (CQMod), the peak bandwidth is that of the best window
// of one queue depth, latencies come from a histogram of three significant digits,
// the JSON is valid, receivers of unreliable services survive losses and count
// them, and an end whose peer is gone says so instead of waiting for ever.
//
// Files: perf.go runs, test.go is the table of what tells the tests apart,
// options.go checks arguments; meeting.go is how ends meet, tcp.go and cm.go the two
// ways, exchange.go and binary.go their messages, session.go who says what when;
// endpoint.go makes and connects the queue pairs, cmconnect.go by rdma_cm,
// gid.go chooses the address, memory.go says where messages lie; stream.go posts
// requests, transfer.go measures bandwidth, volley.go latency, phase.go divides a
// run of a given duration, patience.go waits; report.go is the result, print.go its
// text.
package perf
