package rdmacm_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/linktest"
)

// udpPair returns two hosts with UDP sockets on loopback, in real time.
func udpPair(t testing.TB) (a, b *node) {
	t.Helper()
	open := func() *node {
		l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return openHost(t, wrap.Seal(wrap.Loopback(l)))
	}
	return open(), open()
}

// TestNoSuchService: the error names the service that the system does not know. The system's resolver has threads of
// its own, so this is no simulation.
func TestNoSuchService(t *testing.T) {
	a, _ := udpPair(t)
	if _, err := a.cm.Dial(patience(t), "192.0.2.2:nosuchservice", rdmacm.Config{}); err == nil ||
		!strings.Contains(err.Error(), "nosuchservice") {
		t.Errorf("got %v, want an error that names nosuchservice", err)
	}
}
