package quorum

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rsocket"
	"github.com/goroce/goroce/roce/simtest"
)

// TestReboot: while hosts are cut off and reboot, one at a time, each of two clients reads what the other one wrote a
// while ago.
func TestReboot(t *testing.T) {
	bad := wrap.FaultConfig{Drop: 0.02, Duplicate: 0.02, Reorder: 0.02, Latency: 500 * time.Microsecond}
	simtest.Run(t, simtest.Config{Hosts: 4, Seeds: 20, Fault: bad}, func(t *testing.T, n *simtest.Net) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var clients [2]*Client
		for i := range clients {
			clients[i] = NewClient(uint8(i), n.Hosts[3].CM(), "192.0.2.1:7471", "192.0.2.2:7471", "192.0.2.3:7471")
			defer clients[i].Close()
		}
		over := make(chan struct{})
		go disturb(t, n.Hosts[:3], n.Seed(), over)
		defer func() { <-over }()
		const keys = 25
		for i := range 100 {
			key, old, want := fmt.Sprint(i%keys), fmt.Sprint((i+1)%keys), ""
			if i+1 >= keys {
				want = fmt.Sprint("value ", i+1-keys)
			}
			if err := clients[i/keys%2].Put(ctx, key, fmt.Sprint("value ", i)); err != nil {
				t.Fatalf("put %s: %v", key, err)
			}
			if got, err := clients[1-i/keys%2].Get(ctx, old); err != nil || got != want {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}

// disturb starts the replicas. Then it cuts one host after the other off for a while, and reboots it.
func disturb(t *testing.T, hosts []*simtest.Host, seed uint64, over chan<- struct{}) {
	defer close(over)
	disks := []*Disk{NewDisk(), NewDisk(), NewDisk()}
	for i, h := range hosts {
		serve(t, h, disks[i])
	}
	for i := range hosts {
		at := (i + int(seed)) % len(hosts)
		for _, do := range []func(){hosts[at].Unplug, hosts[at].Plug, hosts[at].Reboot,
			func() { serve(t, hosts[at], disks[at]) }} {
			time.Sleep(30 * time.Millisecond)
			do()
		}
	}
}

// serve starts a replica on a host. It ends when the host reboots.
func serve(t *testing.T, h *simtest.Host, d *Disk) {
	l, err := rsocket.Listen(t.Context(), h.CM(), h.At("7471"), rsocket.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	go Serve(l, d)
}
