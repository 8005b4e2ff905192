// Package decode explains captures of RoCEv2 traffic: it is the engine of
// "goroced decode FILE".
//
// [Run] reads a pcap or pcapng file and prints a line for every RoCEv2 packet:
// what it says, whether its ICRC is right, and what it does to its connection:
// which message it belongs to, what it acknowledges, whether it is sent again and
// why. Options choose other forms: every field of every header, only what is
// wrong, JSON lines, ladder diagrams. A summary closes the output.
//
//	reader (capfile) -> frame.go -> tracker (track) -> text.go, fields.go, json.go or ladder.go
//	                                                -> summary.go
//
// mad.go says what a management datagram is about.
package decode
