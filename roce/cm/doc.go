// Package cm is the communication manager of one port (IBTA chapter 12): it makes
// and ends connections by exchanging management datagrams over the general
// services QP, QP 1. It is a pure state machine: datagrams, wishes and the time go
// in, datagrams and events come out. It reads no clock, starts no goroutine and
// does no IO. Package rdmacm drives it on a device.
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
// what comes of it.
//
// The UD twin is SIDR: Resolve sends SIDR_REQ, the other side gets an event
// Request with Datagram set, and Answer replies with a QP number and Q_Key.
//
// What comes from the wire is bounded: connections that are half open, in total
// and by source, and those in timewait. Beyond it the oldest go. All that is
// dropped or refused is counted in [Stats].
package cm
