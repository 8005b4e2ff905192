// Package sock has what drivers need for sockets: arrays of message headers for sendmmsg and recvmmsg ([Batch]), and a
// poll loop that other goroutines can interrupt ([Poller]).
package sock
