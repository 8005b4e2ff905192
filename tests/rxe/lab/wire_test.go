package lab

import (
	"net"
	"net/netip"
)

// sendDatagrams sends n datagrams from the calling thread's namespace. They are long
// enough for a BTH and an ICRC, but contain neither.
func sendDatagrams(to netip.AddrPort, n int) error {
	conn, err := net.ListenUDP("udp", nil) // not connected, so that it never gets "connection refused"
	if err != nil {
		return err
	}
	defer conn.Close()
	payload := make([]byte, 64)
	for range n {
		if _, err := conn.WriteToUDPAddrPort(payload, to); err != nil {
			return err
		}
	}
	return nil
}
