// Package rstream is librdmacm's rstream, and with Options.IOMap its riostream: two
// programs that stream data to and fro over rsockets and report latency and
// bandwidth. Either end may be the C tool on a real RNIC or on rdma_rxe.
//
// [Run] runs one end on a given device. Both ends run the same list of tests, which is not transmitted, so their
// options must be equal. By default there are two connections, one for latency tests and one for bandwidth tests; with
// Options.Custom there is one connection with one test. A test is
//
//	client                                   server
//	16 bytes                        ----->
//	                                <-----   16 bytes
//	transfers                       ----->   \ as many iterations
//	                                <-----   / as the test has
//
// A transfer of rstream is bytes of the stream. A transfer of riostream is written directly into a buffer that the peer
// has mapped; the peer detects it by polling the last byte, a marker that each transfer phase increments.
//
// Tests, sizes, data and the table on standard output are those of the C tools (v44). The C tools go on after a failed
// test; Run returns. There is no choice of blocking and non-blocking calls, so the options for it have no effect.
//
// Files: rstream.go runs the tests, options.go checks arguments, series.go has the list of tests, play.go runs one,
// stream.go and iomap.go are the two kinds of transfers, memory.go and pattern.go have the data, table.go prints.
package rstream
