// Package cm is the communication manager of one port (IBTA chapter 12): it makes
// and ends connections by exchanging management datagrams over the general
// services QP, QP 1. It is a pure state machine: datagrams, wishes and the time go
// in, datagrams and events come out. It reads no clock, starts no goroutine and
// does no IO. The software device owns one for its port (package roce, cm_port.go), and
// gives applications channels and IDs to use it by.
//
//	     active                                         passive
//	Connect   IDLE                                       Listen
//	          REQ SENT     ----------- REQ ---------->   REQ RCVD      event: Request
//	                       <---------- MRA -----------                 Delay
//	event:    REP RCVD     <---------- REP -----------   REP SENT      Accept
//	Replied
//	Confirm   ESTABLISHED  ----------- RTU ---------->   ESTABLISHED   event: Established
//	                          (data goes both ways)
//	Disconnect DREQ SENT   ----------- DREQ --------->   TIMEWAIT      event: Disconnected
//	event:
//	Disconnected TIMEWAIT  <---------- DREP ----------
//
// A [Manager] holds the connections by their communication ID, [ID]. Each input
// may change the state of one of them, send messages and raise events; afterwards
// the caller takes both out with NextMessage and NextEvent. Deadline says when
// Timeout wants to be called: messages that want an answer are sent again, sooner
// than Linux does it, and with growing intervals.
//
// What is done in each state is in one table, in table.go; testdata/table.txt says
// what comes of it. Some ways through it:
//
// A REQ arrives (request, passive.go). One that names a QP of the same peer, GUID and address
// that has a connection here ends that as stale, for the peer has forgotten it; one of any
// other host does not. Without a listener it is rejected. Otherwise there is a
// connection in REQ RCVD, with a first PSN to expect, and a Request. Copies of the REQ are
// dropped until the answer, and then answered again.
//
// Accept sends the REP and repeats it. If the RTU is lost the peer has an established
// connection and this end does not: the repeated REP makes the peer repeat the RTU
// (repeatRTU), and data that arrive do as well (DataArrived).
//
// DREQs cross: each end is in DREQ SENT when the other's comes, answers it with a DREP and goes to
// timewait (disconnected). The DREPs that follow are duplicates. A DREQ for a connection
// that is not there is answered too (orphanDREQ): its sender wants to be rid of it.
//
// A consumer goes without a word (Release): what is under way is ended for the peer, by a REJ
// or a DREQ, as the row onRelease says for each state, and no event comes of it any more.
//
// The UD twin is SIDR: Resolve sends SIDR_REQ, the other side gets an event
// Request with Datagram set, and Answer replies with a QP number and Q_Key.
//
// What comes from the wire is bounded: connections that are half open, in total
// and by source, and those in timewait. Beyond it the oldest go. All that is
// dropped or refused is counted in [Stats].
package cm
