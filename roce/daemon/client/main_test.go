package client

import (
	"os"
	"testing"

	"github.com/goroce/goroce/roce/daemon/server"
)

// TestMain makes an access of a daemon to memory of clients after its unmapping end the test.
func TestMain(m *testing.M) {
	server.GuardMappings()
	os.Exit(m.Run())
}
