// Package story tells how a queue pair has failed, from the records of its flight recorder (package qp): as a ladder
// diagram, and as a capture file.
//
//	for _, s := range dev.Failures() { // a roce.Device
//		ladder := s.Ladder(40)
//		fmt.Printf("%v\n%s", s.Failed.Cause, ladder.Text(trace.TextOptions{Fold: 4}))
//	}
//
// A recorder is at one end of a connection. Packets that this end has sent may be lost on the way, and those of the
// peer that did not arrive are not there; what is sent again, and what a NAK asks for, tells of them.
//
// The package is pure: no IO of its own, no goroutines, no clock.
package story
