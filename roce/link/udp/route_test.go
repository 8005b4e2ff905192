package udp_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestSharedSubnet: where two interfaces of a host are in one subnet, packets leave by the one that has their source
// address, as those of rdma_rxe. Packets from one address of the host to another still go by loopback.
func TestSharedSubnet(t *testing.T) {
	require.Root(t)
	na, nb := linktest.NewVeth(t, 1500)
	na.Command(t, "ip", "link", "add", "second", "type", "veth", "peer", "name", "other")
	na.Command(t, "ip", "link", "set", "second", "up")
	na.Command(t, "ip", "link", "set", "other", "up")
	// Only the source's interface leads to anybody: "other" stays here.
	for _, v6 := range []bool{false, true} {
		name, first, peer, mine, bits := "IPv4", na.Addr4, nb.Addr4, "10.99.0.77", "/24"
		if v6 {
			name, first, peer, mine, bits = "IPv6", na.Addr6, nb.Addr6, "fd99::77", "/64"
		}
		t.Run(name, func(t *testing.T) {
			add := []string{"addr", "add", mine + bits, "dev", "second"}
			if v6 {
				add = append(add, "nodad")
			}
			na.Command(t, "ip", add...)
			own := netip.MustParseAddr(mine)
			// A neighbour that need not answer: what is sent to it leaves.
			na.Command(t, "ip", "neigh", "replace", peer.String(), "lladdr", "02:00:00:00:00:99", "dev", "second")
			l := openIn(t, na, udp.Options{}, own)
			local := openIn(t, na, udp.Options{}, first)
			before := sentBy(t, na)
			const frames = 50
			for range frames {
				sendOne(t, l, own, peer)
			}
			after := sentBy(t, na)
			if n := after["second"] - before["second"]; n < frames {
				t.Errorf("by the interface of the source %d packets, want %d; by %s %d", n, frames, na.IfName,
					after[na.IfName]-before[na.IfName])
			}
			sendOne(t, l, own, first)
			require.Until(t, "the packet to another address of the host has arrived", func() bool {
				return received(t, local) > 0
			})
		})
	}
}

// sendOne sends a frame.
func sendOne(t *testing.T, l link.Link, from, to netip.Addr) {
	t.Helper()
	frame := []byte(strings.Repeat("x", 64))
	run := link.Run{Src: ib.GIDFromAddr(from), Dst: ib.GIDFromAddr(to), Buf: frame, Size: len(frame)}
	if n, err := l.Send(0, []link.Run{run}); n != 1 || err != nil {
		t.Fatalf("sent %d runs, %v; want 1", n, err)
	}
}

// received returns how many runs a link has.
func received(t *testing.T, l link.Link) int {
	t.Helper()
	n, err := l.Recv(0, make([]link.Run, 8))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sentBy returns how many packets each interface of a namespace has sent.
func sentBy(t *testing.T, ns *linktest.Namespace) map[string]uint64 {
	t.Helper()
	sent := map[string]uint64{}
	err := ns.Do(func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			sent[l.Attrs().Name] = l.Attrs().Statistics.TxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent
}
