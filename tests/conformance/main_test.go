package conformance

import (
	"flag"
	"os"
	"testing"
)

// TestMain lets more pairs play at a time than there are processors: a pair waits most of
// the time, for its other half and for the end of connections.
func TestMain(m *testing.M) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		flag.Set("test.parallel", "4")
	}
	os.Exit(m.Run())
}
