package rstream

import (
	"testing"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/toolstest"
)

// TestLive plays over the machine's network in real time: the memory of riostream is polled.
func TestLive(t *testing.T) {
	o := Defaults()
	o.Custom, o.Iterations, o.Transfers, o.Size, o.Verify, o.IOMap = true, 3, 7, 15, true, true
	open := func(fault wrap.FaultConfig) roce.Device { return toolstest.Device(t, fault) }
	play(t, open, o, wrap.FaultConfig{}, []string{"custom 15 7 3 630"})
}
