package server

import (
	"os"
	"testing"
)

// TestMain has memory of clients that was given back stay, so that a use of it is a fault.
func TestMain(m *testing.M) {
	unmap, faultsEnd = guard, true
	os.Exit(m.Run())
}
