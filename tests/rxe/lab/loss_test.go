package lab

import (
	"net"
	"net/netip"
	"testing"
)

// TestSetCMLoss sends packets to QP 1 and to others, of each family.
func TestSetCMLoss(t *testing.T) {
	l := pair(t)
	if err := l.SetCMLoss(100); err != nil {
		t.Fatal(err)
	}
	var want uint64
	for _, test := range []struct {
		qpn     [3]byte
		dropped bool
	}{
		{[3]byte{0, 0, 1}, true}, {[3]byte{0, 0, 0}, false}, {[3]byte{0, 0, 17}, false}, {[3]byte{1, 0, 1}, false},
	} {
		for _, to := range []netip.Addr{l.VMs[0].IPv4, l.VMs[0].IPv6} {
			packet := make([]byte, 288)
			packet[4] = 0x80 // a congestion mark, which is in the same word as the QPN
			copy(packet[5:], test.qpn[:])
			if err := inside(l.HostNS, func() error {
				return sendPacket(packet,
					netip.AddrPortFrom(to, 4791))
			}); err != nil {
				t.Fatal(err)
			}
			if test.dropped {
				want++
			}
			if got, err := l.Dropped(); err != nil || got != want {
				t.Errorf("dropped %d after a packet for QP %x to %v, %v; want %d", got, test.qpn, to, err, want)
			}
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
