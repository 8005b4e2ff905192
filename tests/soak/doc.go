// Package soak runs programs over real daemons for a long time, in the midst of faults: two hosts, network namespaces
// with a daemon each, a router between them, and MTUs that differ.
//
//	go test ./tests/soak                                          # some 30 seconds; needs root
//	go test ./tests/soak -v -soak.time=1h -soak.seed=17 -timeout 2h
//
// The programs are children, this test program again in a role (child_test.go), and programs in C under `goroced run`
// (pairs_test.go). They check each byte that they exchange, and that each atomic is carried out once.
//
// A run is phases: faults (faults_test.go), the end of retries, and calm, in turn. Whatever fails is an entry of the
// ledger (ledger_test.go). In a calm phase nothing may fail; at other times a fault that was active must explain it.
// Descriptors and resident memory of the daemons are the same in the first and in the last calm phase
// (watch_test.go).
//
// The seed chooses phases, faults, and what programs send. It is printed; it repeats the choices, not the timing.
package soak
