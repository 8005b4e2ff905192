// Package daemon tests `goroced serve` as its users meet it: processes of its own, among
// clients that die, that stop, and that mean it harm.
//
//	go test ./tests/daemon                   # no privilege needed
//	GOROCE_FULL=1 go test ./tests/daemon     # more rounds
//	go test -run '^$' -bench . ./tests/daemon
//
// The clients that do harm are children: this test program again, in a role
// (child_test.go). Beside them two clients of this process exchange data, each byte of
// which is checked (steady_test.go): nothing that the others do may be felt there. When
// those are gone the daemon is to be as it was before: descriptors, mapped memory,
// goroutines, resident memory (process_test.go).
//
// The daemon is built with the tag guardmaps: memory of clients that it has given back stays
// where it was, and nobody may touch it. A use that comes too late ends the daemon, every time.
//
// What is drawn at random comes from a seed, which is printed; GOROCE_SEED repeats it.
package daemon
