// Package trace draws RoCE conversations as ladder diagrams on a text terminal.
//
// A [Ladder] collects what happened between two sides: packets, things that one
// side did by itself, remarks. WriteTo lays them out:
//
//	   time  client                                  server
//	      0  ●  post SEND 2500 B                          │
//	         ├─────── SEND First psn=100 (1024 B) ───────►│
//	1.20 us  ├─ SEND Middle psn=101 (1024 B) ──X          │  dropped: every 2nd packet
//	2.40 us  ├──── SEND Last psn=102 AckReq (452 B) ─────►│
//	9.60 us  │◄── NAK PSN sequence error psn=101 msn=0 ───┤
//	         │┄┄┄┄┄┄┄┄┄┄┄┄ go back to psn 101 ┄┄┄┄┄┄┄┄┄┄┄┄│
//
// Times count from the first event. A row without one happened at the same
// Instant as the row above; one with a plus sign, that long after it, where three
// digits do not tell. Arrows are horizontal: the time is that at which whoever
// called Packet saw the packet.
//
// [Label] and [ShortLabel] are texts for a packet, [Elapsed] that for a span of
// time. Other listings of packets use them as well.
//
// Files: ladder.go collects, fold.go shortens runs of similar packets, layout.go
// measures columns, draw.go makes the rows, label.go writes packets as text.
package trace
