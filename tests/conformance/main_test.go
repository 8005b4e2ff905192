package conformance

import (
	"flag"
	"os"
	"testing"

	"github.com/goroce/goroce/roce/daemon/server"
)

// TestMain lets more pairs play at a time than there are processors: a pair waits most of
// the time, for its other half and for the end of connections. An access of a daemon to
// memory of clients after its unmapping ends the test.
func TestMain(m *testing.M) {
	server.GuardMappings()
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		flag.Set("test.parallel", "16")
	}
	os.Exit(m.Run())
}
