// Package cm is the connection manager of one port (in the IBTA's chapter 12 the communication manager): it makes and
// ends connections by exchanging management datagrams over QP 1, the general services QP. It is a pure state machine:
// datagrams, calls of the consumer and the time go in, datagrams and events come out. It reads no clock, starts no
// goroutine and does no IO. The software device owns one Manager for its port (package roce/internal/cma); applications
// use it by channels and IDs.
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
// A [Manager] holds the connections by their communication ID, [ID]. Each input may change the state of one of them,
// send messages and raise events; afterwards the caller takes both out with NextMessage and NextEvent. Deadline says
// when to call Timeout, which sends messages again that have got no answer: at first sooner than Linux does, then at
// growing intervals.
//
// The table in table.go has the step for each state and each input; testdata/table.txt lists what the steps do. Some
// ways through it:
//
// A REQ arrives (handleREQ in passive.go). If it names a peer's QP (same GUID, GID and QP number) that has a connection
// here, the peer has forgotten that connection, which therefore ends as stale (IBTA 12.9.8.3.1). If nobody listens to
// the service ID, the REQ is rejected. Otherwise a connection in state REQ RCVD is created, with the first PSN that
// this end expects, and Request is raised. Copies of the REQ are ignored until the consumer has answered; later they
// are answered again, whether the answer was a REP or a REJ (answers.go).
//
// Accept sends the REP, and sends it again until the RTU arrives. If the RTU is lost, the connection is established at
// the peer only: the next REP makes the peer repeat the RTU (repeatRTU). The first data to arrive have the same effect
// as the RTU (DataArrived).
//
// Two DREQs cross: each end is in state DREQ SENT when the other's DREQ arrives, answers it with a DREP and enters
// timewait (handleDisconnect). The DREPs that follow are duplicates. A DREQ for an unknown connection is answered, too
// (orphanDREQ), because its sender waits for a DREP.
//
// A consumer calls Release without ending the connection first: the step onRelease of its state tells the peer by a REJ
// or a DREQ, and no further events are raised.
//
// For datagram services there is SIDR (IBTA 12.11): Resolve sends a SIDR_REQ, the other end raises Request with
// Datagram set, and Answer replies with a QP number and a Q_Key.
//
// Whatever comes from the wire takes bounded memory: the half-open connections, in total and by source, and those in
// timewait are limited by [Options], the answers that are kept by their number. At a limit the oldest makes room. What
// is dropped or rejected is counted in [Stats].
package cm
