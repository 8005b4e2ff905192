package conformance

import "github.com/goroce/goroce/ib"

// pd returns the half's own protection domain, always the same one.
func (e *End) pd() ib.PD {
	if e.thePD == nil {
		e.thePD = e.newPD()
	}
	return e.thePD
}

func (e *End) newPD() ib.PD {
	pd, err := e.dev.AllocPD()
	e.must(err, "allocate PD")
	e.own("PD", pd.Close)
	return pd
}

func (e *End) newXRCD() ib.XRCD {
	x, err := e.dev.AllocXRCD()
	e.must(err, "allocate XRC domain")
	e.own("XRC domain", x.Close)
	return x
}

func (e *End) newChannel() ib.Channel {
	ch, err := e.dev.CreateChannel()
	e.must(err, "create channel")
	e.own("channel", ch.Close)
	return ch
}

func (e *End) newCQ(init ib.CQInit) ib.CQ {
	cq, err := e.dev.CreateCQ(init)
	e.must(err, "create CQ of %d entries", init.Entries)
	e.own("CQ", cq.Close)
	return cq
}

func (e *End) newQP(pd ib.PD, init ib.QPInit) ib.QP {
	qp, err := pd.CreateQP(init)
	e.must(err, "create %v QP", init.Type)
	e.own("QP", qp.Close)
	return qp
}

func (e *End) newSRQ(pd ib.PD, init ib.SRQInit) ib.SRQ {
	srq, err := pd.CreateSRQ(init)
	e.must(err, "create %v SRQ", init.Type)
	e.own("SRQ", srq.Close)
	return srq
}

func (e *End) newMW(pd ib.PD, t ib.MWType) ib.MW {
	mw, err := pd.AllocMW(t)
	e.must(err, "allocate window of %v", t)
	e.own("MW", mw.Close)
	return mw
}

// newAH creates an address handle for the peer's address.
func (e *End) newAH(pd ib.PD, change func(*ib.AHAttr)) ib.AH {
	attr := e.toPeer()
	if change != nil {
		change(&attr)
	}
	ah, err := pd.CreateAH(attr)
	e.must(err, "create AH for %v", attr.DGID.Addr())
	e.own("AH", ah.Close)
	return ah
}

// toPeer returns the address vector of the other half's device.
func (e *End) toPeer() ib.AHAttr {
	return ib.AHAttr{DGID: e.peer.GID, SGIDIndex: e.s.me.GIDIndex, Port: 1}
}

// toSelf returns the address vector of the half's own device.
func (e *End) toSelf() ib.AHAttr {
	return ib.AHAttr{DGID: e.s.me.GID, SGIDIndex: e.s.me.GIDIndex, Port: 1}
}

// mtu returns the largest path MTU that both ports support.
func (e *End) mtu() ib.MTU { return min(e.port.ActiveMTU, e.peer.Port.ActiveMTU) }
