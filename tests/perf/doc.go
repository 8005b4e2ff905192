// Package perf compares goroce with other uses of the same wire.
//
//	go run ./tests/perf/cmd/perf                       # everything but the guests, as root
//	go run ./tests/perf/cmd/perf -vm -svg docs/figures # everything, and the plots of docs/performance.md
//	go run ./tests/perf/cmd/perf -list                 # the rows and their bars
//	go run ./tests/perf/cmd/perf -rows 'WRITE 64' -mtu 1500 -rounds 3
//	go test -run '^$' -bench . -benchtime 1x ./tests/perf    # a few rows, one round
//
// # What is measured
//
// A row is a figure, of goroce or of something to compare it with. Its two ends are processes, started for each
// measurement, in two network namespaces that a veth pair joins. For rows on a bridge there is a third namespace
// between the two, which drops single packets at random. With -vm the ends are also run in two guests of the rxe lab.
//
// Rows for comparison: TCP is one stream of iperf3. The bare loop is one thread at each end on unconnected UDP sockets:
// a sendmsg of as many equal segments as fit (UDP_SEGMENT), UDP_GRO at the receiver, and a CRC32 of every segment at
// both ends. The shaped loop adds the packets of classic WRITEs (FIRST, MIDDLE, LAST), a copy of the payload at each
// end, a window and acknowledgements, but no protocol. The bare ring loop is one AF_XDP socket at each end, without a
// CRC.
//
// Machines differ, and one machine differs from hour to hour. So rows are measured in turn, round by round, and the
// ratios within a round count: a bar says how many times the figure of another row a row should reach, and next to it
// are the median, the smallest and the greatest ratio of the rounds. The verdict is "ok" or "short"; a run does not
// fail by it.
//
// What else runs on the machine shows in the bare loop, the first row. A round counts only if its bare loop reaches
// 85 % of the best one of the run, on its own wire, or, where there is none, on the first. A wire's round ends when the
// bare loop is slow; rounds in its place are taken until there are enough, or the time limit has come. The report says
// how many were dropped.
//
// Gb/s are payload, without headers of RDMA, IP or Ethernet, also for the loops. Bandwidth rows keep 128 requests in
// flight, all of them signaled, and poll. With a reliable service a completed message has been acknowledged; loops
// count what has arrived. Ping-pong rows are half round trips with both ends polling: for WRITE they poll the memory
// that the peer writes, and their CQ.
//
// Rows with daemons have one more process at each end, a daemon that owns the device. The client's memory is a memfd,
// or any memory. In bandwidth rows the client waits for events when there is nothing to poll, because it shares its
// processor.
//
// Rows named dropin are unmodified programs of perftest, started as `goroced run` starts them (docs/dropin.md), beside
// the Go client, which polls as they do. What they register is memory of their own, which the library may
// move to a file, memory that it leaves where it is ("process memory"), or a memfd that they map (--mmap).
// Their servers sleep while WRITEs arrive; at ib_send_lat both ends poll. That makes three or four threads that spin:
// all yield or sleep when they find nothing, and what else runs on the machine takes its time from them.
//
// Rows of processor time and of system calls run the program twice, the second time with twice as many messages, and
// show the difference: what the program needs to start does not count. strace counts the system calls of the programs
// at both ends, but for those by which they yield or sleep, and for write, which rings the doorbell of a daemon that
// has gone to sleep. The processor time of programs that poll is mostly what they wait.
//
// CPU is the processor time of both ends, including daemons, user and system, for each packet with payload. The
// kernel's work for the wire counts where it happened to run, which with veth is mostly the sender. Ends that spin use
// all time that there is, so a CPU figure is an upper bound of the work.
//
// # How to add a row
//
// Add a line to table (rows.go) with the name, the unit, and how to measure the row: usually pair(Job{...}), which runs
// both halves of a kind (child.go) with the parameters in the Job. A new kind consists of two functions, one for each
// end, one of which counts (meter.go).
//
// Files: rows.go is the table, run.go runs it, quiet.go decides which rounds count. wire.go, bridge.go and vm.go
// create wires. child.go and peer.go run the two ends; tcp.go, bare.go, shaped.go, ring.go with xsk.go, verbs.go,
// pingpong.go, connect.go, loop.go and idle.go are the kinds. dropin.go runs programs in C, perftest.go reads what they
// print, dropin_rows.go has their rows. incast.go has the rows of many senders, for which events.go counts system calls
// and wake-ups. ends.go opens goroce, daemon.go starts daemons. stats.go compares with bars, report.go and machine.go
// print, plots.go and svg.go draw.
package perf
