package perf

import (
	"context"
	"errors"
	"testing"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/toolstest"
)

// live is the machine: links over UDP, and TCP.
func live(t *testing.T) *place {
	port := linktest.Port(t)
	return &place{func(f wrap.FaultConfig) roce.Device { return toolstest.Device(t, f) },
		func(o *Options) { o.Port, o.AckTimeout = port, longTimeout }}
}

// longTimeout is an ACK timeout of 1.1 s: eight of them are longer than a machine at work keeps a thread waiting.
const longTimeout = 18

// TestLive runs a test over the machine's network, in real time: over TCP, and by rdma_cm.
func TestLive(t *testing.T) {
	for _, cm := range []bool{false, true} {
		for _, test := range []Test{BW, Lat} {
			o := Defaults(Write, test)
			o.CM, o.Iters, o.Size = cm, 200, 4096
			checkPair(t, live(t), o, wrap.FaultConfig{})
		}
	}
}

// TestServerIsCancelled: a server that waits for a client ends with its context.
func TestServerIsCancelled(t *testing.T) {
	for _, cm := range []bool{false, true} {
		dev := toolstest.Device(t, wrap.FaultConfig{})
		o := Defaults(Write, BW)
		o.Port, o.CM = 0, cm
		server := start(t, dev, o)
		server.Await(t, server.Out, "Waiting for client")
		server.Stop()
		if err := server.Wait(t); !errors.Is(err, context.Canceled) {
			t.Errorf("rdma_cm %v: error %v, want %v", cm, err, context.Canceled)
		}
	}
}
