package conformance

import (
	"net/netip"

	"github.com/goroce/goroce/ib"
)

// bound makes an ID with options and binds it.
func (c *channel) bound(at netip.AddrPort, options ...ib.CMOption) (*cmID, error) {
	id := c.newID(ib.CMIDInit{})
	for _, o := range options {
		c.e.must(id.SetOption(o, 1), "set option %d", o)
	}
	return id, id.Bind(at)
}

func cmPortInUse(e *End) {
	c := e.newCM()
	one, err := c.bound(e.at(0))
	e.must(err, "bind")
	port := one.port()
	_, err = c.bound(e.at(port))
	e.is(err, "binding a port twice", ib.ErrAddrInUse)
	_, err = e.newCM().bound(e.at(port))
	e.is(err, "binding a port of another channel", ib.ErrAddrInUse)
	other := c.newID(ib.CMIDInit{Type: ib.UD})
	e.must(other.Bind(e.at(port)), "bind the port of another space")
	e.must(one.Listen(1), "listen")
	e.must(one.Close(), "close")
	again, err := c.bound(e.at(port))
	e.must(err, "bind the port again")
	e.must(again.Listen(1), "listen again")
}

func cmWildcards(e *End) {
	c := e.newCM()
	any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	one, err := c.bound(netip.AddrPortFrom(any4, 0))
	e.must(err, "bind all of IPv4")
	port := one.port()
	_, err = c.bound(netip.AddrPortFrom(any6, port))
	e.is(err, "binding all addresses, beside those of IPv4", ib.ErrAddrInUse)
	six, err := c.bound(netip.AddrPortFrom(any6, port), ib.CMOptionAFOnly)
	e.must(err, "bind all of IPv6 only")
	for _, l := range []*cmID{one, six} {
		e.must(l.Listen(1), "listen")
	}
	_, err = c.bound(e.at(port))
	e.is(err, "binding an address, beside all of them", ib.ErrAddrInUse)
}

func cmReuse(e *End) {
	c := e.newCM()
	one, err := c.bound(e.at(0), ib.CMOptionReuseAddr)
	e.must(err, "bind")
	port := one.port()
	_, err = c.bound(e.at(port))
	e.is(err, "binding without the option", ib.ErrAddrInUse)
	two, err := c.bound(e.at(port), ib.CMOptionReuseAddr)
	e.must(err, "bind with the option")
	e.is(one.Listen(1), "listening beside another", ib.ErrAddrInUse)
	e.must(two.Close(), "close the other")
	e.must(one.Listen(1), "listen alone")
}

func cmEphemeral(e *End) {
	c := e.newCM()
	seen := map[uint16]bool{}
	for range 100 {
		id, err := c.bound(e.at(0))
		e.must(err, "bind")
		if p := id.port(); p < 1024 || seen[p] {
			e.fatalf("port %d was chosen", p)
		} else {
			seen[p] = true
		}
	}
}

func cmForeign(e *End) {
	c := e.newCM()
	foreign := netip.MustParseAddrPort("198.51.100.77:0")
	if !e.s.me.GID.Is4() {
		foreign = netip.MustParseAddrPort("[2001:db8:77::77]:0")
	}
	_, err := c.bound(foreign)
	e.is(err, "binding an address of another host", ib.ErrNoAddr)
}
