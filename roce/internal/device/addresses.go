package device

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/roce/link"
)

// MaxGIDs is the maximum number of rows of the GID table.
const MaxGIDs = 128

// gidTable is the port's GID table. A change replaces the table; rows keep their indices. An
// empty row remembers its last GID, which gets the same row if it comes back.
type gidTable []gidRow

type gidRow struct {
	gid  ib.GID
	held bool // the link has the address: the row is not empty
}

func newGIDTable(gids []ib.GID) *gidTable {
	t := make(gidTable, len(gids))
	for i, g := range gids {
		t[i] = gidRow{g, true}
	}
	return &t
}

// find returns the index of the row that holds g, or with held false of an empty row that held
// it last; -1 if there is none.
func (t gidTable) find(g ib.GID, held bool) int {
	return slices.Index(t, gidRow{g, held})
}

// held returns the GIDs of the rows that are not empty.
func (t gidTable) held() (gids []ib.GID) {
	for _, row := range t {
		if row.held {
			gids = append(gids, row.gid)
		}
	}
	return gids
}

// with returns a table with g at its old index, at the first empty one, or in a new row.
func (t gidTable) with(g ib.GID) *gidTable {
	i := t.find(g, false)
	if i < 0 {
		// Another address's row before a new one, so that the table stays short. Should that one come back, it gets
		// another index.
		i = slices.IndexFunc(t, func(r gidRow) bool { return !r.held })
	}
	t = slices.Clone(t)
	if i < 0 {
		t, i = append(t, gidRow{}), len(t)
	}
	t[i] = gidRow{g, true}
	return &t
}

// without returns a table with row i empty.
func (t gidTable) without(i int) *gidTable {
	t = slices.Clone(t)
	t[i].held = false
	return &t
}

// full reports whether there is no room for another GID.
func (t gidTable) full() bool {
	return len(t) >= MaxGIDs && !slices.ContainsFunc(t, func(r gidRow) bool { return !r.held })
}

// SetAddresses is that of roce.Device.
func (d *Device) SetAddresses(gids []ib.GID) error {
	d.addresses.Lock()
	defer d.addresses.Unlock()
	var errs []error
	// Removals first: they make room in a table that is full.
	for i, row := range *d.gids.Load() {
		if row.held && !slices.Contains(gids, row.gid) {
			errs = append(errs, d.removeAddress(i, row.gid))
		}
	}
	for _, g := range gids {
		if d.gids.Load().find(g, true) < 0 {
			errs = append(errs, d.addAddress(g))
		}
	}
	return errors.Join(errs...)
}

// addAddress adds an address to all links, or to none if one of them fails.
func (d *Device) addAddress(g ib.GID) error {
	if d.gids.Load().full() {
		return limitError("add address "+g.Addr().String(), "GIDs", MaxGIDs)
	}
	shards := d.engine.Shards()
	for i, s := range shards {
		if err := s.Link().AddLocal(g); err != nil {
			for _, s := range shards[:i] {
				_ = s.Link().RemoveLocal(g)
			}
			return err
		}
	}
	// Last: packets to an address in the table arrive.
	d.setGIDs(d.gids.Load().with(g))
	return nil
}

// removeAddress empties row i, so that no lookup finds its address g any more, and then removes g
// from the links.
func (d *Device) removeAddress(i int, g ib.GID) error {
	d.setGIDs(d.gids.Load().without(i))
	d.cm.AddressGone(g)
	var errs []error
	for _, s := range d.engine.Shards() {
		errs = append(errs, s.Link().RemoveLocal(g))
	}
	return errors.Join(errs...)
}

// setGIDs publishes a table and raises EventGIDChange. The caller holds addresses.
func (d *Device) setGIDs(t *gidTable) {
	d.engine.SetGIDs(len(*t))
	d.gids.Store(t) // after SetGIDs, so that Modify accepts the rows that GIDs returns
	d.raise(ib.Event{Type: ib.EventGIDChange})
}

// SetMTU is that of roce.Device.
func (d *Device) SetMTU(bytes int) {
	mtu := min(max(ib.MTUFor(bytes), ib.MTU256), d.maxMTU)
	d.engine.SetMTU(mtu, d.frame(min(bytes, d.caps.MTU)))
	d.mtu.Store(int32(mtu)) // after engine.SetMTU, so that Modify accepts the MTU that QueryPort returns
}

// headers is the most that IP and UDP headers, BTH, RETH, immediate data and ICRC take of a frame.
const headers = 40 + 8 + 12 + 16 + 4 + 4

// frame returns how many bytes of payload surely fit an IP packet of so many, which may be above the active MTU: that
// is a power of two. Options.ActiveMTU bounds packets, too.
func (d *Device) frame(bytes int) int {
	if d.opts.ActiveMTU != 0 {
		return 0
	}
	return bytes - headers
}

// checkAH refuses an address vector that the port cannot send to.
func checkAH(op string, ah *ib.AHAttr, t gidTable) error {
	if err := qp.CheckAH(op, ah, &qp.Limits{GIDs: len(t)}); err != nil {
		return err
	}
	if err := checkSource(op, ah, t); err != nil && !mixedGroup(ah, t) {
		return err
	}
	return nil
}

// mixedGroup reports whether an address vector is of a group of another family than its source: rdma_rxe makes handles
// of such, too. No packet could have such addresses: the engine drops them.
func mixedGroup(ah *ib.AHAttr, t gidTable) bool {
	i := ah.SGIDIndex
	return i >= 0 && i < len(t) && t[i].held && t[i].gid.Is4() != ah.DGID.Is4() && ah.DGID.Addr().IsMulticast()
}

// checkSource refuses an address vector whose source GID is not in the table, or was removed, or
// that mixes IPv4 and IPv6: no packet could have such addresses.
func checkSource(op string, ah *ib.AHAttr, t gidTable) error {
	i := ah.SGIDIndex
	if i < 0 || i >= len(t) {
		return qp.CheckAH(op, ah, &qp.Limits{GIDs: len(t)})
	}
	row := &t[i]
	if !row.held {
		return driver.Refuse(op, "AH",
			fmt.Sprintf("SGID index %d, which is empty: address %v is gone", i, row.gid.Addr()),
			"a row of the GID table with an address (goroced devinfo -v lists them)", ib.ErrInvalid)
	}
	if row.gid.Is4() == ah.DGID.Is4() {
		return nil
	}
	return driver.Refuse(op, "AH", "DGID "+ah.DGID.Addr().String(),
		fmt.Sprintf("an address of the family of local GID %d, %v; choose another SGIDIndex", i, row.gid.Addr()),
		ib.ErrInvalid)
}

// defaultHops is the hop limit of Linux routes.
const defaultHops = 64

// path returns the addressing of packets to a, except the source port. To one host they have the hop limit of routes,
// whatever a has, as in Linux (ib_resolve_eth_dmac). Programs set 1, which means nothing to an InfiniBand switch, and
// would end at the first router here.
func (t gidTable) path(a *ib.AHAttr) link.Run {
	hops := a.HopLimit
	if hops == 0 || !a.DGID.Addr().IsMulticast() {
		hops = defaultHops
	}
	return link.Run{Src: t[a.SGIDIndex].gid, Dst: a.DGID, TrafficClass: a.TrafficClass, HopLimit: hops,
		FlowLabel: a.FlowLabel}
}
