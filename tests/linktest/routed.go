package linktest

import (
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// NewRouted makes two hosts with two routers between them. The hosts' links have one MTU, that between the routers has
// another. The routers' interfaces are those to the hosts. The test needs root.
//
//	a 10.99.1.1 --- 10.99.1.2 near 10.99.2.1 --- 10.99.2.2 far 10.99.3.1 --- 10.99.3.2 b
func NewRouted(t testing.TB, mtu, middle int) (a, near, far, b *Namespace) {
	t.Helper()
	require.Root(t)
	a, near, far, b = newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)
	nearOut, farOut := *near, *far // the same namespaces with the interfaces between the routers
	lay(t, a, near, mtu, "10.99.1.1/24", "10.99.1.2/24")
	lay(t, &nearOut, &farOut, middle, "10.99.2.1/24", "10.99.2.2/24")
	lay(t, far, b, mtu, "10.99.3.1/24", "10.99.3.2/24")
	for _, r := range []*Namespace{near, far} {
		r.Command(t, "sysctl", "-w", "net/ipv4/ip_forward=1")
	}
	a.Command(t, "ip", "route", "add", "10.99.0.0/16", "via", "10.99.1.2")
	near.Command(t, "ip", "route", "add", "10.99.3.0/24", "via", "10.99.2.2")
	far.Command(t, "ip", "route", "add", "10.99.1.0/24", "via", "10.99.2.1")
	b.Command(t, "ip", "route", "add", "10.99.0.0/16", "via", "10.99.3.1")
	return a, near, far, b
}

// lay joins two namespaces by a veth pair of its own.
func lay(t testing.TB, a, b *Namespace, mtu int, addrA, addrB string) {
	t.Helper()
	name(a, b)
	connect(t, a, b, mtu, []string{addrA}, []string{addrB})
}
