package server

import "maps"

// compact counts an entry that was deleted from m. It returns m, or a copy if m once had many more entries: a map keeps
// its memory when entries are deleted, and so a client that has closed its objects would still occupy memory which
// nothing is booked for. Its work is that of the deletions, and it only reads m.
func compact[M ~map[K]V, K comparable, V any](m M, deleted *int) M {
	const few = 64
	if *deleted++; *deleted <= len(m)+few {
		return m
	}
	*deleted = 0
	smaller := make(M, len(m))
	maps.Copy(smaller, m)
	return smaller
}
