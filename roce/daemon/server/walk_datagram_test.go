package server

import (
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/abi"
)

// walkAH is an address handle.
type walkAH struct {
	*thing
	ib.AH
	pd   *thing
	side int // the device that it leads to
}

// walkQKey is the Q_Key of all UD QPs.
const walkQKey = 0x5EED

func (c *walkClient) makeAH(pd *thing) *thing {
	if pd == nil {
		return nil
	}
	a := &walkAH{pd: pd, side: c.n(2)}
	ah, err := pd.value.(ib.PD).CreateAH(c.vector(a.side))
	if !c.granted("create AH", err) {
		return nil
	}
	a.AH, a.thing = ah, c.add(abi.KindAH, ah, pd)
	c.ahs = append(c.ahs, a)
	a.after = func() { c.ahs = slices.DeleteFunc(c.ahs, func(o *walkAH) bool { return o == a }) }
	return a.thing
}

// vector returns an address vector that leads to a device.
func (c *walkClient) vector(side int) ib.AHAttr {
	return ib.AHAttr{DGID: c.gids[side], TrafficClass: uint8(c.n(64) << 2), HopLimit: uint8(1 + c.n(64))}
}

// modifyAH lets an address handle lead to any device. Datagrams that were posted before may go to
// either.
func (c *walkClient) modifyAH() {
	if len(c.ahs) == 0 {
		return
	}
	a := c.ahs[c.n(len(c.ahs))]
	a.side = c.n(2)
	must(c.t, a.Modify(c.vector(a.side)))
	if attr, err := a.Query(); err != nil || attr.DGID != c.gids[a.side] {
		c.t.Errorf("an address handle leads to %v, want %v: %v", attr.DGID.Addr(), c.gids[a.side].Addr(), err)
	}
}

// closeAH closes an address handle, which datagrams that are not sent yet may name.
func (c *walkClient) closeAH() {
	if len(c.ahs) > 0 {
		c.closeThing(c.ahs[c.n(len(c.ahs))].thing)
	}
}

// fillDatagram fills in the data and the destination of a UD SEND.
func (c *walkClient) fillDatagram(p *post, wr *ib.SendWR) bool {
	if p.verb != ib.WRSendImm {
		return false
	}
	a := c.someAH(p.qp.pd)
	if a == nil {
		return false
	}
	var to []*walkQP
	for _, o := range c.clients {
		for _, q := range o.qps {
			if q.typ == ib.UD && !q.ended && o.side == a.side {
				to = append(to, q)
			}
		}
	}
	if len(to) == 0 {
		return false
	}
	q, most := to[c.n(len(to))], int(c.mtu)
	if c.one(50) {
		most = slotBytes // more than a datagram can be
	}
	m := &walkMessage{num: len(c.messages), to: q, by: p, from: p.qp.Num(), source: c.gids[c.side]}
	if wr.SGL, m.data = c.gather(p.qp.pd, most); wr.SGL == nil {
		return false
	}
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = a.Num(), q.Num(), walkQKey
	if m.stray = c.one(20); m.stray {
		wr.RemoteQKey++
	}
	p.message = m
	c.messages = append(c.messages, m)
	return true
}

// someAH returns an address handle of a PD, most often; nil if there is none.
func (c *walkClient) someAH(pd *thing) *walkAH {
	list := slices.DeleteFunc(slices.Clone(c.ahs), func(a *walkAH) bool { return a.pd != pd })
	if len(list) == 0 || len(list) < 3 && c.one(8) {
		c.makeAH(pd)
	}
	if c.one(30) {
		list = c.ahs // a datagram with a handle of another PD fails
	}
	if len(list) == 0 {
		return nil
	}
	return list[c.n(len(list))]
}

// datagram checks a UD message that a receive has taken: behind a GRH, or an IPv4 header in its
// place, from which an answer can be addressed.
func (c *walkClient) datagram(p *post, wc *ib.WC, m *walkMessage) {
	c.totals.datagrams++
	if wc.SrcQP != m.from || int(wc.ByteLen) != ib.GRHLen+len(m.data) {
		c.t.Errorf("datagram %d: %+v, want it of %d bytes from QP %v", m.num, *wc, ib.GRHLen+len(m.data), m.from)
	}
	s := p.slots[0]
	if s.of != p {
		return // the memory was revoked
	}
	grh := slices.Clone(s.bytes()[:ib.GRHLen])
	back, err := ib.AHFromWC([]ib.GIDEntry{{GID: c.gids[c.side]}}, wc, grh)
	if err != nil || back.DGID != m.source {
		c.t.Errorf("datagram %d comes from %v, want %v: %v", m.num, back.DGID.Addr(), m.source.Addr(), err)
	}
	c.landed(p, p.slots, nil, append(grh, m.data...))
}
