package qp

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/mr"
)

// AH is an address handle: the destination of datagrams. Its owner never modifies it,
// but replaces it by another one, and may keep in Owner what it needs to send.
type AH struct {
	PD    *mr.PD
	Attr  ib.AHAttr
	Owner any
}

// AHs finds the address handle that a request names; nil if there is none.
type AHs interface{ AH(ib.AHNum) *AH }

// ahCheck is one rule for address vectors: a test, and a description for errors.
type ahCheck struct {
	value   func(a *ib.AHAttr) any
	ok      func(a *ib.AHAttr, l *Limits) bool
	allowed func(l *Limits) string
}

var ahChecks = []ahCheck{
	{func(a *ib.AHAttr) any { return fmt.Sprintf("SGID index %d", a.SGIDIndex) },
		func(a *ib.AHAttr, l *Limits) bool { return a.SGIDIndex >= 0 && a.SGIDIndex < l.GIDs },
		func(l *Limits) string {
			return fmt.Sprintf("0 to %d, a row of the GID table (goroced devinfo -v lists it)", l.GIDs-1)
		}},
	{func(a *ib.AHAttr) any { return fmt.Sprintf("DGID %v", a.DGID) },
		func(a *ib.AHAttr, _ *Limits) bool { return !a.DGID.Addr().IsUnspecified() },
		fixed("an IP address in GID form other than 0.0.0.0 and ::, IPv4 as ::ffff:a.b.c.d; set it to the peer's GID")},
	{func(a *ib.AHAttr) any { return fmt.Sprintf("AH port %d", a.Port) },
		func(a *ib.AHAttr, _ *Limits) bool { return a.Port == 0 || a.Port == 1 }, fixed("1, the only port")},
	{func(a *ib.AHAttr) any { return fmt.Sprintf("flow label %#x", a.FlowLabel) },
		func(a *ib.AHAttr, _ *Limits) bool { return a.FlowLabel < 1<<20 }, fixed("20 bits")},
}

// CheckAH returns an *ib.AttrError for an address vector that a device with these limits
// cannot send to. It accepts multicast groups.
func CheckAH(op string, a *ib.AHAttr, l *Limits) error {
	for i := range ahChecks {
		c := &ahChecks[i]
		if !c.ok(a, l) {
			return driver.Refuse(op, "AH", c.value(a), c.allowed(l), ib.ErrInvalid)
		}
	}
	return nil
}

// validUnicast reports whether g is neither the unspecified address nor a multicast group.
func validUnicast(g ib.GID) bool {
	a := g.Addr()
	return !a.IsUnspecified() && !a.IsMulticast()
}
