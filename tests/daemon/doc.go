// Package daemon tests `goroced serve` in processes of its own, with clients that die, that
// stop, and that attack it.
//
//	go test ./tests/daemon                   # no privilege needed
//	GOROCE_FULL=1 go test ./tests/daemon     # more rounds
//	go test -run '^$' -bench . ./tests/daemon
//
// The harmful clients are children: this test program again, in a role (child_test.go).
// Beside them two clients in this process exchange data, and check each byte of it
// (steady_test.go): the harmful clients must not affect this exchange. When they have ended, the
// daemon must hold no more than before: descriptors, mapped memory, goroutines, heap and resident
// memory (process_test.go).
//
// With GOROCE_FULL=1 the daemon is built with the tag guardmaps: it replaces unmapped memory of clients with
// inaccessible pages, so that every access after the unmapping ends the daemon.
//
// Random numbers come from a seed, which is printed; set GOROCE_SEED to repeat a run.
package daemon
