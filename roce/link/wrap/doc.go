// Package wrap has Links that wrap other Links. They work with every driver. This is their order, from the engine down:
//
//	Fault    what happens to frames in a bad network (FaultConfig), from a seed
//	Rules    loses, delays, repeats and marks the frames that rules select (Rules.Above)
//	Seal     fills in the ICRCs
//	Rules    damages sealed frames that rules select (Rules.Below)
//	Corrupt  flips bits in sealed frames
//	Network  Fault and more, to sealed frames, for links that number them one by one
//	Pcap     writes frames to a capture file
//	Tap      writes frames to captures that begin and end while it runs
//	Trace    calls back for each frame
//	Loopback returns runs to addresses of this host without a driver
//
// All of them are optional, except that something must write the ICRC. The order matters: Fault may split runs, which
// changes the IPv4 identifications that the ICRC covers; captures show what was really sent, and packets to this host
// like all others. Fault or Network is enough: a FaultConfig is the same network for both, but that Fault does not
// damage frames.
//
// All faults come from rules. A Faulter is the Link on which some of them apply. Rules is a table of rules that is
// changed while links run; a FaultConfig is written as rules that stay: what happens by chance, and the path below.
//
// A device of several shards has a stack for each of its links. The stacks share nothing but the capture file
// (Capturer.Beside), the Tap and the Rules. Callbacks may be called from several goroutines.
//
// A wrapper closes the Link under it.
package wrap
