package faults

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
)

var only = flag.Uint64("faults.seed", 0, "run this network only")

// TestTransfer: over twenty bad networks, all messages arrive, each once, in order.
func TestTransfer(t *testing.T) {
	repeated := 0
	for seed := uint64(1); seed <= 20; seed++ {
		if *only != 0 && seed != *only {
			continue
		}
		synctest.Test(t, func(t *testing.T) { repeated += transfer(t, seed) })
		if t.Failed() {
			t.Fatalf("repeat it: go test ./examples/faults -run Transfer -faults.seed=%d", seed)
		}
	}
	if repeated == 0 {
		t.Error("nothing was lost: the networks are too good to show anything")
	}
}

// transfer moves messages over one network, and returns how many had to be repeated.
func transfer(t *testing.T, seed uint64) int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := pair(t, wrap.FaultConfig{Seed: seed, Drop: 0.2, Duplicate: 0.1, Reorder: 0.1, Delay: 0.2,
		MaxDelay: 4 * patience})
	const messages = 25
	received := make(chan error, 1)
	receiving, stop := context.WithCancel(ctx)
	go func() {
		for i := range messages {
			if got, err := b.Receive(receiving); err != nil || got != fmt.Sprint("message ", i) {
				received <- fmt.Errorf("message %d is %q, %v", i, got, err)
				return
			}
		}
		received <- nil
		_, _ = b.Receive(receiving) // acknowledges the last message again, if the sender did not get that
	}()
	for i := range messages {
		if err := a.Send(ctx, fmt.Sprint("message ", i)); err != nil {
			t.Errorf("send: %v", err)
			break
		}
	}
	if err := <-received; err != nil {
		t.Error(err)
	}
	stop()
	return a.Repeated
}

// pair connects two ends, whose devices are on a network in memory. Faults happen to what they send.
func pair(t *testing.T, faults wrap.FaultConfig) (a, b *Peer) {
	t.Helper()
	network := mem.NewNetwork()
	gids := [2]ib.GID{ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1")),
		ib.GIDFromAddr(netip.MustParseAddr("192.0.2.2"))}
	var peers [2]*Peer
	var pds [2]ib.PD
	for i, gid := range gids {
		faults.Seed += uint64(i) << 32
		l := wrap.Fault(wrap.Seal(network.Open([]ib.GID{gid}, mem.Options{})), faults)
		// In synctest the clock stands still while a goroutine runs, so the device must sleep and not spin.
		dev, err := roce.Open(l, roce.Options{Seed: faults.Seed, Spin: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		if peers[i], pds[i], err = NewPeer(dev); err != nil {
			t.Fatal(err)
		}
	}
	for i, pd := range pds {
		ah, err := pd.CreateAH(ib.AHAttr{DGID: gids[1-i], Port: 1})
		if err != nil {
			t.Fatal(err)
		}
		peers[i].Connect(ah, peers[1-i].qp.Num())
	}
	return peers[0], peers[1]
}
