package server

import (
	"os"
	"testing"
)

// TestMain makes an access to memory of clients after its unmapping end the test.
func TestMain(m *testing.M) {
	if os.Getenv(preyVariable) != "" {
		servePrey()
		return
	}
	GuardMappings()
	os.Exit(m.Run())
}
