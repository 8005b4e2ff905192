package perf

import (
	"os"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// TestMain lets more tests run at a time than there are processors: many wait for a time limit.
func TestMain(m *testing.M) {
	require.Parallel(4)
	os.Exit(m.Run())
}
