package server

import (
	"os"
	"testing"
)

// TestMain makes unmap replace clients' memory with inaccessible pages, so that later accesses fault.
func TestMain(m *testing.M) {
	unmap, faultsEnd = guard, true
	os.Exit(m.Run())
}
