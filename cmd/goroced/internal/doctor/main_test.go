package doctor

import (
	"os"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

func TestMain(m *testing.M) {
	require.Parallel(4) // tests in namespaces of their own mostly wait
	os.Exit(m.Run())
}
