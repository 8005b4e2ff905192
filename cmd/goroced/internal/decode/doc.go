// Package decode explains captures of RoCEv2 traffic, for "goroced decode FILE".
//
// [Run] reads a pcap or pcapng file and prints a line for every RoCEv2 packet: its contents, whether its ICRC is
// correct, and its effect on the connection: which message it belongs to, what it acknowledges, whether it is a
// retransmission and why. Options select other forms: every field of every header, only packets with problems, JSON
// lines, ladder diagrams. The output ends with a summary.
//
//	roce/trace/capfile -> frame.go -> roce/trace/track -> text.go, fields.go, json.go or ladder.go
//	                                                   -> summary.go
//
// mad.go describes management datagrams, copies.go finds packets that were captured when sent and again when received.
package decode
