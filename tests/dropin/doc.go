// Package dropin runs unmodified programs in C over the daemon, with the libraries of roce/daemon/dropin in place of
// the machine's libibverbs: as an ordinary user, over one daemon and, as root, over two daemons in two network
// namespaces.
//
//	go test ./tests/dropin                  # what is not installed is skipped, with the name of its package
//	go test ./tests/dropin -run TestPairs
//
// docs/dropin.md has the same command lines.
package dropin
