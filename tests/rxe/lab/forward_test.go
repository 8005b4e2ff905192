package lab

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/require"
)

// TestForward drops all RoCEv2 packets to a guest, and no other packets, and checks that the
// wire is as before when the forwarder is removed.
func TestForward(t *testing.T) {
	const sent = 50
	l := pair(t)
	ping := func(when string) {
		t.Helper()
		cmd := l.HostCommand(within(t, toolTimeout), "busybox", "ping", "-c", "1", "-W", "20", l.VMs[0].IPv4.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", when, err, out)
		}
	}
	if err := l.Forward(1, wrap.FaultConfig{Drop: 1}); err != nil {
		t.Fatal(err)
	}
	ping("through the forwarder")
	for _, to := range []netip.Addr{l.VMs[0].IPv4, l.VMs[0].IPv6} {
		if err := inside(l.HostNS, func() error {
			return sendDatagrams(netip.AddrPortFrom(to, 4791),
				sent)
		}); err != nil {
			t.Fatal(err)
		}
	}
	require.Until(t, fmt.Sprintf("%d packets to the guest are dropped, and none from it", 2*sent), func() bool {
		from, to := l.Forwarded()
		return to.Dropped == 2*sent && from.Dropped == 0
	})
	for range 2 { // removing it twice makes no difference
		if err := l.Forward(1, wrap.FaultConfig{}); err != nil {
			t.Fatal(err)
		}
		ping("without the forwarder")
	}
	if from, to := l.Forwarded(); from != (wrap.FaultCounts{}) || to != (wrap.FaultCounts{}) {
		t.Errorf("%+v and %+v without a forwarder, want none", from, to)
	}
}
