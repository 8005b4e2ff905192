// Package trace describes a conversation of two RDMA hosts as data, a [Ladder], and draws it as a ladder diagram.
//
// A [Ladder] is a list of events: packets, events of one side, remarks. A program may draw it as it likes;
// [Ladder.Text] draws for people at a terminal, and for logs:
//
//	   time  client                                  server
//	      0  ●  post SEND 2500 B                          │
//	         ├─────── SEND First psn=100 (1024 B) ───────►│
//	1.20 us  ├─ SEND Middle psn=101 (1024 B) ──X          │  dropped: every 2nd packet
//	2.40 us  ├──── SEND Last psn=102 AckReq (452 B) ─────►│
//	9.60 us  │◄── NAK PSN sequence error psn=101 msn=0 ───┤
//	         │┄┄┄┄┄┄┄┄┄┄┄┄ go back to psn 101 ┄┄┄┄┄┄┄┄┄┄┄┄│
//
// Times count from the first event. A row without a time has the same Instant as the row above. A row with a plus sign
// has the time since the row above, because three digits would not tell the two apart. Arrows are horizontal: the time
// of a packet is its Event.At.
//
// [Label] and [ShortLabel] return texts for a packet, [Elapsed] for a duration. Package
// [github.com/goroce/goroce/roce/trace/track] says what each packet does to its connection.
//
// The package is pure: no IO, no goroutines, no clock.
//
// Files: ladder.go has the data, label.go describes packets; text.go begins the drawing, fold.go shortens runs of
// similar packets, layout.go computes column widths, draw.go draws rows.
package trace
