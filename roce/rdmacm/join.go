package rdmacm

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Membership is the membership of a QP in a multicast group.
type Membership struct {
	AH   ib.AHAttr
	QPN  ib.QPN // ib.QPNMulticast
	QKey uint32 // DefaultQKey, as in rdma_cm

	cm    *CM
	id    ib.CMID
	qp    ib.QP
	group ib.GID
}

// Join makes a UD QP a member of a multicast group and returns where to send. The group's GID is its IP address, as in
// Linux's cma_iboe_set_mgid. Linux joins IPv4 groups only.
func (c *CM) Join(ctx context.Context, group netip.Addr, qp ib.QP) (*Membership, error) {
	m, err := c.join(ctx, driver.PlainAddr(group), qp)
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
	local, ok := ib.SourceGID(gids, group)
	if !ok {
		return nil, refuse("join", "group", group,
			fmt.Sprintf("a group of the family of an address of the device: %s", driver.ListGIDs(gids)))
	}
	if err := qp.AttachMulticast(ib.GIDFromAddr(group)); err != nil {
		return nil, err
	}
	m := &Membership{cm: c, qp: qp, group: ib.GIDFromAddr(group)}
	if err := m.join(ctx, local.GID.Addr(), group); err != nil {
		_ = m.Leave()
		return nil, err
	}
	return m, nil
}

// join creates an ID for the membership and joins the group with it.
func (m *Membership) join(ctx context.Context, local, group netip.Addr) error {
	id, s, err := m.cm.newID(ib.CMIDInit{Type: ib.UD})
	if err != nil {
		return err
	}
	m.id = id
	if err := id.Bind(netip.AddrPortFrom(local, 0)); err != nil {
		return err
	}
	ev, err := s.do(ctx, ib.CMMulticastJoin, func() error { return id.JoinMulticast(group) })
	m.AH, m.QPN, m.QKey = ev.AH, ev.Param.QPN, ev.Param.QKey
	return err
}

// Leave ends the membership.
func (m *Membership) Leave() error {
	if m.id != nil {
		m.cm.mu.Lock()
		m.cm.forget(m.id)
		m.cm.mu.Unlock()
	}
	return m.qp.DetachMulticast(m.group)
}
