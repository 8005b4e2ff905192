package linktest

import (
	"fmt"
	"testing"

	"github.com/goroce/goroce/tests/require"
)

// NewRouted makes two hosts with two routers between them. The hosts' links have one MTU, that between the routers has
// another. The routers' interfaces are those to the hosts. The test needs root.
//
//	a 10.99.1.1 --- 10.99.1.2 near 10.99.2.1 --- 10.99.2.2 far 10.99.3.1 --- 10.99.3.2 b
//	  fd99:1::1     fd99:1::2      fd99:2::1     fd99:2::2     fd99:3::1     fd99:3::2
func NewRouted(t testing.TB, mtu, middle int) (a, near, far, b *Namespace) {
	t.Helper()
	require.Root(t)
	a, near, far, b = newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)
	nearOut, farOut := *near, *far // the same namespaces with the interfaces between the routers
	lay(t, 1, a, near, mtu)
	lay(t, 2, &nearOut, &farOut, middle)
	lay(t, 3, far, b, mtu)
	for _, r := range []*Namespace{near, far} {
		r.Command(t, "sysctl", "-w", "net/ipv4/ip_forward=1", "net/ipv6/conf/all/forwarding=1")
	}
	for _, r := range []struct {
		on      *Namespace
		to, via string
	}{
		{a, "10.99.0.0/16", "10.99.1.2"}, {near, "10.99.3.0/24", "10.99.2.2"}, {far, "10.99.1.0/24", "10.99.2.1"},
		{b, "10.99.0.0/16", "10.99.3.1"},
		{a, "fd99::/16", "fd99:1::2"}, {near, "fd99:3::/32", "fd99:2::2"}, {far, "fd99:1::/32", "fd99:2::1"},
		{b, "fd99::/16", "fd99:3::1"},
	} {
		r.on.Command(t, "ip", "route", "add", r.to, "via", r.via)
	}
	return a, near, far, b
}

// lay joins two namespaces by a veth pair of its own, the subnet of a number.
func lay(t testing.TB, subnet int, a, b *Namespace, mtu int) {
	t.Helper()
	name(a, b)
	addrs := func(host int) []string {
		return []string{fmt.Sprintf("10.99.%d.%d/24", subnet, host), fmt.Sprintf("fd99:%d::%d/64", subnet, host)}
	}
	connect(t, a, b, mtu, addrs(1), addrs(2))
}

// Cabled is two hosts with a router between them. What the router and B exchange crosses a namespace of its own, Cable:
// a bridge between two devices there, in whose place something else may carry the packets for a time.
//
//	A 10.99.1.1 --- 10.99.1.2 Router 10.99.3.1 --- Left Cable Right --- 10.99.3.2 B
//	  fd99:1::1     fd99:1::2        fd99:3::1                          fd99:3::2
//
// Without a router A has its address on the cable.
type Cabled struct {
	A, B        *Namespace
	Router      *Namespace // its interface is that to A; nil for none
	Cable       *Namespace
	Left, Right string
}

// NewCabled makes such hosts. The test needs root.
func NewCabled(t testing.TB, mtuA, mtuB int) *Cabled {
	t.Helper()
	require.Root(t)
	c := &Cabled{A: newNamespace(t), Router: newNamespace(t)}
	lay(t, 1, c.A, c.Router, mtuA)
	out := *c.Router // the same namespace with another interface
	c.plug(t, &out, mtuB)
	c.Router.Command(t, "sysctl", "-w", "net/ipv4/ip_forward=1", "net/ipv6/conf/all/forwarding=1")
	c.Route(t)
	return c
}

// NewCable makes such hosts without a router, A with the router's address on the cable. The test needs root.
func NewCable(t testing.TB, mtu int) *Cabled {
	t.Helper()
	require.Root(t)
	c := &Cabled{A: newNamespace(t)}
	c.plug(t, c.A, mtu)
	return c
}

// plug makes B, and the cable between it and near.
func (c *Cabled) plug(t testing.TB, near *Namespace, mtu int) {
	t.Helper()
	c.B, c.Cable = newNamespace(t), newNamespace(t)
	left, right := *c.Cable, *c.Cable // the same namespace with its two interfaces
	name(near, &left)
	connect(t, near, &left, mtu, []string{"10.99.3.1/24", "fd99:3::1/64"}, nil)
	name(&right, c.B)
	c.Left, c.Right = left.IfName, right.IfName
	c.Cable.Command(t, "ip", "link", "add", "cable", "type", "bridge")
	c.Cable.Command(t, "ip", "link", "set", "cable", "mtu", fmt.Sprint(mtu), "up")
	connect(t, &right, c.B, mtu, nil, []string{"10.99.3.2/24", "fd99:3::2/64"})
	c.Join(t)
}

// Route gives the hosts their routes. The kernel drops those of an interface that is taken down.
func (c *Cabled) Route(t testing.TB) {
	t.Helper()
	for _, r := range []struct {
		on       *Namespace
		to4, to6 string
	}{{c.A, "10.99.1.2", "fd99:1::2"}, {c.B, "10.99.3.1", "fd99:3::1"}} {
		r.on.Command(t, "ip", "route", "replace", "10.99.0.0/16", "via", r.to4)
		r.on.Command(t, "ip", "route", "replace", "fd99::/16", "via", r.to6)
	}
}

// Join has the bridge carry what crosses Cable.
func (c *Cabled) Join(t testing.TB) {
	t.Helper()
	for _, end := range []string{c.Left, c.Right} {
		c.Cable.Command(t, "ip", "link", "set", end, "master", "cable")
	}
}

// Part takes the bridge away: nothing crosses Cable.
func (c *Cabled) Part(t testing.TB) {
	t.Helper()
	for _, end := range []string{c.Left, c.Right} {
		c.Cable.Command(t, "ip", "link", "set", end, "nomaster")
	}
}
