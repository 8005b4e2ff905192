// Package perf measures goroce beside what else the same wire can carry.
//
//	go run ./tests/perf/cmd/perf                       # everything, as root
//	go run ./tests/perf/cmd/perf -list                 # the rows and their bars
//	go run ./tests/perf/cmd/perf -rows 'WRITE 64' -mtu 1500 -rounds 3
//	go test -run '^$' -bench . -benchtime 1x ./tests/perf    # a few rows, one round
//
// # What is measured
//
// A row is one figure, of goroce or of a yardstick. Its two ends are processes of
// their own, started anew for each measurement, in two network namespaces that a
// veth pair joins. Rows on a bridge have a third namespace between the two, which
// drops single packets at random. With -vm the ends are in two guests of the rxe
// lab.
//
// The yardsticks: TCP is one stream of iperf3. The bare loop is one thread a side
// on unconnected UDP sockets: a sendmsg of as many equal segments as fit
// (UDP_SEGMENT), UDP_GRO at the receiver, and a CRC32 of every segment on both
// sides. The shaped loop is the same with the packets of classic WRITEs (FIRST,
// MIDDLE, LAST), a copy of the payload on each side, a window and
// acknowledgements; it has no protocol. The bare ring loop is one AF_XDP socket a
// side and no CRC.
//
// # How to read the figures
//
// Machines differ, and one machine differs from hour to hour. So rows are taken
// in turn, round by round, and what counts are ratios within a round: a bar says
// how many times its yardstick a row must reach, and beside it stands the median
// of the rounds' ratios, with the least and the greatest. A wide range means that
// something else ran on the machine. Bars are judged, "ok" or "short", but nothing
// fails by them.
//
// Gb/s are payload: no headers of RDMA, IP or Ethernet, in the loops neither.
// Bandwidth rows keep 128 requests in flight, ask for a completion of each, and
// poll. What a reliable service completes has been acknowledged; loops count what
// arrived. Ping-pong rows are half round trips with both sides polling: for
// WRITE they poll the memory that the peer writes, and their CQ.
//
// Rows of daemons have one more process at each end, a daemon that owns the device.
// Its client's memory is a memfd or any; in bandwidth rows the client waits for
// events where there is nothing to poll, as it shares its processor.
//
// CPU is the processor time of both ends, daemons included, user and system, for
// each packet that carries data; kernel work of the wire counts where it happened to
// run, which with veth is mostly the sender. Ends that spin use all the time there is,
// so a CPU figure is an upper bound of the work.
//
// # How to add a row
//
// A line in table (rows.go) names it, its unit, and how to measure it: mostly
// pair(Job{...}), which runs both halves of a kind (child.go) with the parameters
// in the Job. A new kind is two functions, one for each end, of which one counts
// (meter.go).
//
// Files: rows.go is the table, run.go takes the rounds; wire.go, bridge.go and
// vm.go make places to measure in; child.go and peer.go run the two ends, and
// tcp.go, bare.go, shaped.go, ring.go with xsk.go, verbs.go, pingpong.go, loop.go
// and idle.go are what they do; ends.go opens goroce, daemon.go starts daemons;
// stats.go judges, report.go and machine.go print, plots.go and svg.go draw.
package perf
