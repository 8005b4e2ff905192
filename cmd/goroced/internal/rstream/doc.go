// Package rstream is librdmacm's rstream, and with Options.IOMap its riostream: two
// programs that stream data to and fro over rsockets and report latency and
// bandwidth. Either end may be the C tool on a real RNIC or on rdma_rxe.
//
// [Run] plays one end on a given device. Both ends go through the same list of
// tests, which they do not tell one another: their options must be the same. By
// default there are two connections, one for the latency tests and one for the
// bandwidth tests; with Options.Custom there is one connection with one test. A
// test goes
//
//	client                                   server
//	16 bytes                        ----->
//	                                <-----   16 bytes
//	transfers                       ----->   \ as many iterations
//	                                <-----   / as the test has
//
// A transfer of rstream is bytes of the stream. That of riostream is written
// straight into a buffer that the peer has mapped, and the peer sees it by polling
// the last byte: a marker that counts up with each turn.
//
// Tests, sizes, data and the table on standard output are the C tools' (v44), which
// go on after a test that failed; Run ends there. It has no blocking and
// non-blocking calls to choose from: those options change nothing.
//
// Files: rstream.go runs, options.go checks arguments, series.go is the list of
// tests, play.go plays one, stream.go and iomap.go are the two kinds of transfer,
// memory.go and pattern.go know the data, table.go prints.
package rstream
