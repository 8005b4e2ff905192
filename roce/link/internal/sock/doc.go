// Package sock holds the socket plumbing that the drivers share: arrays of
// message headers for sendmmsg and recvmmsg ([Batch]), and a poll loop that
// other goroutines can interrupt ([Poller]).
package sock
