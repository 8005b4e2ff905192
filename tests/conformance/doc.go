// Package conformance is a test suite for any pair of ib.Devices: what a verbs programmer may rely on, as cases that
// two halves run against each other.
//
// A [Case] is one rule, which its name states: "bounds/write/one-byte-over". Most cases have two halves, Active (the
// requester, the client) and Passive (the responder), and each pair of devices runs them in both directions. Others
// need no partner (Alone): they run on each device by itself.
//
// A half is a function of an [End], whose methods cases are written with: objects that are closed after the case
// (objects.go), memory with a check of every byte (memory.go), queues that are waited for by events and never by
// polling (queue.go), connected queue pairs (connect.go), expected errors (check.go), events (events.go). A failure
// ends the half with an error and does not use package testing, so the same halves run in a test, in a program, or in a
// guest of the lab.
//
// # How the halves communicate
//
// There is one connection, within one process, between two, or between two machines (wire.go). One side leads ([Lead],
// [Run]), the other serves ([Serve]):
//
//	leader                          server
//	hello: kind, limits, GID   <->  hello
//	run: case, role, rules     ->
//	tell: name, value          <->  tell      queue pairs, keys, addresses; barriers
//	finished: error            <->  finished  the bodies are over; nothing closes before
//	closed: error, rules used  <->  closed    all objects are closed
//
// A half that fails ends the other one at once. A half that does not return by its deadline is reported and ends the
// run (session.go, half.go). The leader collects the errors of both halves (lead.go).
//
// # Deviations
//
// Devices differ. A difference is a row in a table, never an if in a case ([Deviation], table [Deviations]): it has
// the kind of device, the role, the cases, the effect and the reason with its source. Rows are checked: one with
// another status or an expected failure makes the run fail if it does not apply any more.
//
// # Running it
//
//	go test ./tests/conformance                 # software to software, over each link, of a daemon, with itself
//	go test ./tests/conformance -run TestBadNetwork -simtest.seeds=100 # in simulations of a network that loses frames
//	go test -run TestConformance ./tests/rxe    # against rdma_rxe in a guest of the lab
//
//	conformance serve -device rnic:rxe0 -listen :7471
//	conformance run -device udp:10.77.0.1 -peer 10.77.0.2:7471 -case 'write/*'
//	conformance run -device udp:10.77.0.1 -peer 10.77.0.2:7471 -part 0/2 # each second case
//
// GOROCE_CASES is a pattern of cases for the guest. Timeouts are short and sizes small, so a pair of software devices
// takes seconds. The coverage follows the lists of rdma-core's pyverbs tests and of google/rdma-unit-test; cases.go has
// the topics.
package conformance
