package stopandwait

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/simtest"
)

// TestTransfer: over twenty bad networks, all messages arrive, each once, in order.
func TestTransfer(t *testing.T) {
	bad := wrap.FaultConfig{Drop: 0.2, Duplicate: 0.1, Reorder: 0.1, Delay: 0.2, MaxDelay: 4 * patience}
	repeated := 0
	simtest.Run(t, simtest.Config{Seeds: 20, Fault: bad}, func(t *testing.T, n *simtest.Net) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a, b := pair(t, n)
		const messages = 25
		received := make(chan error, 1)
		go func() {
			for i := range messages {
				if got, err := b.Receive(ctx); err != nil || got != fmt.Sprint("message ", i) {
					received <- fmt.Errorf("got %q, %v, want message %d", got, err, i)
					return
				}
			}
			received <- nil
			_, _ = b.Receive(ctx) // acknowledges the last message again, if the sender did not get that
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
		repeated += a.Repeated
	})
	if repeated == 0 {
		t.Error("nothing was lost: the networks are too good to show anything")
	}
}

// pair connects ends on both hosts.
func pair(t *testing.T, n *simtest.Net) (a, b *Peer) {
	t.Helper()
	var peers [2]*Peer
	var pds [2]ib.PD
	for i := range peers {
		var err error
		if peers[i], pds[i], err = NewPeer(n.Hosts[i].Device()); err != nil {
			t.Fatal(err)
		}
	}
	for i, pd := range pds {
		ah, err := pd.CreateAH(ib.AHAttr{DGID: ib.GIDFromAddr(n.Hosts[1-i].Addr()), Port: 1})
		if err != nil {
			t.Fatal(err)
		}
		peers[i].Connect(ah, peers[1-i].qp.Num())
	}
	return peers[0], peers[1]
}
