package cma

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// InitQPAttr returns the attributes for a Modify of the ID's QP, as Linux's rdma_init_qp_attr does.
func (id *ID) InitQPAttr(to ib.QPState) (attr ib.QPAttr, mask ib.QPAttrMask, err error) {
	const op = "init QP attributes"
	if err := id.lock(op); err != nil {
		return attr, 0, err
	}
	defer id.home.mu.Unlock()
	attr.State, mask = to, ib.AttrState
	ud := id.init.Type == ib.UD
	if to == ib.StateInit {
		attr.Port = 1
		mask |= ib.AttrPKeyIndex | ib.AttrPort
		if ud {
			attr.QKey = ib.DefaultCMQKey
			return attr, mask | ib.AttrQKey, nil
		}
		attr.Access = id.rights()
		return attr, mask | ib.AttrAccess, nil
	}
	if to != ib.StateRTR && to != ib.StateRTS {
		return attr, 0, driver.Refuse(op, "State", to, "INIT, RTR, RTS", ib.ErrInvalid)
	}
	if ud {
		if to == ib.StateRTS {
			mask |= ib.AttrSQPSN
		}
		return attr, mask, nil
	}
	if !id.agreed {
		return attr, 0, driver.Refuse(op, "CM ID", id.state, "after CMConnectRequest or CMConnectResponse", ib.ErrState)
	}
	p, most := &id.params, id.port.opts.MaxRdAtomic // of a peer that has more of them than this device
	attr = ib.QPAttr{
		State: to, AH: id.addressVector(), PathMTU: p.PathMTU, DestQPN: p.RemoteQPN, RQPSN: p.RQPSN, SQPSN: p.SQPSN,
		MaxDestRdAtomic: int(min(p.ResponderResources, most)), MaxRdAtomic: int(min(p.InitiatorDepth, most)),
		Timeout: p.AckTimeout, RetryCnt: p.RetryCount, RNRRetry: p.RNRRetry,
	}
	return attr, mask | connectedMask[to] | id.reliableMask(to), nil
}

// Attributes of connected QPs, and the additional ones of RC.
var (
	connectedMask = map[ib.QPState]ib.QPAttrMask{
		ib.StateRTR: ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN,
		ib.StateRTS: ib.AttrSQPSN,
	}
	reliableMask = map[ib.QPState]ib.QPAttrMask{
		ib.StateRTR: ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer,
		ib.StateRTS: ib.AttrMaxRdAtomic | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry,
	}
)

func (id *ID) reliableMask(to ib.QPState) ib.QPAttrMask {
	if id.init.Type != ib.RC {
		return 0
	}
	return reliableMask[to]
}

// rights returns the peer's access rights (Linux's cm_init_qp_init_attr): WRITE once a connection is being made, READ
// and atomics if this end accepts any.
func (id *ID) rights() ib.Access {
	switch {
	case id.conn == 0:
		return 0
	case id.params.ResponderResources == 0:
		return ib.RemoteWrite
	}
	return ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
}
