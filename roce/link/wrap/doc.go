// Package wrap holds Links around Links. They work on every driver. From the
// engine down they stack as
//
//	Fault    what happens to frames in a bad network (FaultConfig), from a seed
//	Rules    the same to frames that rules select (Rules.Above)
//	Seal     fills in the ICRCs
//	Rules    flips bits in sealed frames that rules select (Rules.Below)
//	Corrupt  flips bits in sealed frames
//	Network  Fault and more, to sealed frames, for links that number them one by one
//	Pcap     writes frames to a capture file
//	Tap      writes frames to captures that begin and end while it runs
//	Trace    calls back for each frame
//	Turn     brings runs to one's own address back without a wire
//
// Any of them may be left out, except that something must Seal. The order
// matters: Fault may split runs, which changes the identifications that the
// ICRCs cover; a capture shows what was really sent; and packets to oneself are
// captured like all others. Fault or Network is enough: a FaultConfig is the same network
// for both, but that Fault does not damage frames.
//
// A device of several shards has a stack for each of its links. They share nothing
// but the capture file (Capturer.Beside), the Tap and the Rules; callbacks that they share must be safe to
// call from several goroutines.
//
// A wrapper closes the Link under it.
package wrap
