package lab

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestSetCMLoss sends packets of each family, the last of them to QP 1. Only that one
// may be dropped.
func TestSetCMLoss(t *testing.T) {
	l := pair(t)
	if err := l.SetCMLoss(100); err != nil {
		t.Fatal(err)
	}
	for i, to := range []netip.Addr{l.VMs[0].IPv4, l.VMs[0].IPv6} {
		for _, qpn := range [][3]byte{{0, 0, 0}, {0, 0, 17}, {1, 0, 1}, {0, 0, 1}} {
			packet := make([]byte, 288)
			packet[4] = 0x80 // a congestion mark, which is in the same word as the QPN
			copy(packet[5:], qpn[:])
			if err := inside(l.HostNS, func() error {
				return sendPacket(packet, netip.AddrPortFrom(to, 4791))
			}); err != nil {
				t.Fatal(err)
			}
		}
		want := uint64(i + 1)
		if got, err := awaitDrops(t, l, want); err != nil || got != want {
			t.Fatalf("dropped %d after four packets to %v, %v; want %d", got, to, err, want)
		}
	}
}

// awaitDrops waits until at least n packets were dropped, and returns how many were.
// Packets may be dropped late: the first ones to a guest wait until the kernel has the
// guest's link address, and a busy kernel leaves others to its threads.
func awaitDrops(t *testing.T, l *Lab, n uint64) (uint64, error) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	for {
		dropped, err := l.Dropped()
		if err != nil || dropped >= n || ctx.Err() != nil {
			return dropped, err
		}
	}
}

func sendPacket(packet []byte, to netip.AddrPort) error {
	conn, err := net.ListenUDP("udp", nil) // not connected, so that it never gets "connection refused"
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.WriteToUDPAddrPort(packet, to)
	return err
}
