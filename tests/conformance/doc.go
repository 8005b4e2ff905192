// Package conformance is one suite for any pair of ib.Devices: what a verbs
// programmer may rely on, as cases that two halves play against each other.
//
// A [Case] is one rule, and its name reads like it: "bounds/write/one-byte-over".
// Most cases have two halves, Active (the requester, the client) and Passive (the
// responder), and each pair of devices plays them in both directions. Others need
// no partner (Alone): they run on each device by itself.
//
// A half is a function of an [End], which has what cases are written in: objects
// that are closed behind the case (objects.go), memory whose every byte is checked
// (memory.go), queues that are waited for by events, never by spinning (queue.go),
// connected queue pairs (connect.go), refusals (check.go), events (events.go). What
// goes wrong ends the half as an error, not through package testing, so the
// same halves run in a test, in a program, or in a guest of the lab.
//
// # How the halves meet
//
// One connection joins them, in one process, in two, or on two machines (wire.go).
// One side leads ([Lead], [Run]), the other serves ([Serve]):
//
//	leader                          server
//	hello: kind, limits, GID   <->  hello
//	run: case, role, rules     ->
//	tell: name, value          <->  tell      queue pairs, keys, addresses; barriers
//	finished: error            <->  finished  the bodies are over; nothing closes before
//	closed: error, rules used  <->  closed    all objects are closed
//
// A half that fails ends the other at once; one that does not return by its
// deadline is reported and ends the run (session.go, half.go). The leader collects
// both halves' errors (lead.go).
//
// # Deviations
//
// Devices differ. A difference is a row in a table, never an if in a case
// ([Deviation], table [RxeDeviations]): it names the kind of device, the role, the
// cases, the effect and the reason with its source. Rows are held to their word:
// one that says "another status" or "fails" makes the run fail where it no longer
// applies.
//
// # Running it
//
//	go test ./tests/conformance                 software to software: mem, udp, rawsock, one device with itself
//	go test -run TestConformance ./tests/rxe    against rdma_rxe in a guest of the lab; GOROCE_CASES is a pattern of cases
//
//	conformance serve -device rnic:rxe0 -listen :7471
//	conformance run -device udp:10.77.0.1 -peer 10.77.0.2:7471 -case 'write/*'
//
// Timeouts are short and sizes modest: a pair of software devices takes seconds.
// The coverage follows the lists of rdma-core's pyverbs tests and of
// google/rdma-unit-test; cases.go has the topics.
package conformance
