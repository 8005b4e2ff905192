package conformance

import (
	"os"
	"testing"

	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/require"
)

// TestMain lets more pairs play at a time than there are processors: a pair waits most of
// the time, for its other half and for the end of connections. An access of a daemon to
// memory of clients after its unmapping ends the test.
func TestMain(m *testing.M) {
	server.GuardMappings()
	require.Parallel(16)
	os.Exit(m.Run())
}
