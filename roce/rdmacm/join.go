package rdmacm

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib"
)

// Membership is that of a QP in a multicast group.
type Membership struct {
	AH   ib.AHAttr
	QPN  ib.QPN // ib.QPNMulticast
	QKey uint32 // DefaultQKey, as rdma_cm has it

	qp    ib.QP
	group ib.GID
}

// Join makes a UD QP a member of a multicast group and returns where to send. The
// group's GID is the IP address of the group, as Linux has it for RoCEv2
// (cma_iboe_set_mgid). Linux joins IPv4 groups only.
func (c *CM) Join(ctx context.Context, group netip.Addr, qp ib.QP) (*Membership, error) {
	m, err := c.join(ctx, plain(group), qp)
	if err != nil {
		return nil, opError("join", group.String(), err)
	}
	return m, nil
}

func (c *CM) join(ctx context.Context, group netip.Addr, qp ib.QP) (*Membership, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !group.IsMulticast() {
		return nil, refuse("join", "group", group, "a multicast address: 224.0.0.0/4 or ff00::/8")
	}
	gids, err := c.dev.GIDs(1)
	if err != nil {
		return nil, err
	}
	local, err := groupSource(gids, group)
	if err != nil {
		return nil, err
	}
	m := &Membership{QPN: ib.QPNMulticast, QKey: DefaultQKey, qp: qp, group: ib.GIDFromAddr(group)}
	m.AH = ib.AHAttr{DGID: m.group, SGIDIndex: local, Port: 1}
	if err := qp.AttachMulticast(m.group); err != nil {
		return nil, err
	}
	return m, nil
}

// groupSource returns the row of the GID table to send to a group from: of its
// family, link-local for groups of the link, if there is such a one.
func groupSource(gids []ib.GIDEntry, group netip.Addr) (int, error) {
	index, found := 0, false
	for _, e := range gids {
		a := e.GID.Addr()
		if a.Is4() != group.Is4() {
			continue
		}
		if suits := a.IsLinkLocalUnicast() == group.IsLinkLocalMulticast(); suits || !found {
			index, found = e.Index, true
			if suits {
				break
			}
		}
	}
	if !found {
		return 0, refuse("join", "group", group, fmt.Sprintf("a group of the family of an address of the device: %s", list(gids)))
	}
	return index, nil
}

// Leave ends the membership.
func (m *Membership) Leave() error { return m.qp.DetachMulticast(m.group) }
