package rdmacm

import (
	"errors"
	"io"

	"github.com/goroce/goroce/ib"
)

// objects are closers in the order of their creation.
type objects []io.Closer

func (o *objects) add(c io.Closer) { *o = append(*o, c) }

// close closes as many as possible, the last one first. It may be called again.
func (o objects) close() error {
	var errs []error
	for i := len(o) - 1; i >= 0; i-- {
		errs = append(errs, o[i].Close())
	}
	return errors.Join(errs...)
}

// endpoint is the QP of a connection with its PD and CQs.
type endpoint struct {
	dev            ib.Device
	qp             ib.QP
	pd             ib.PD
	sendCQ, recvCQ ib.CQ
	minRNR         uint8
	responders     int     // Config.ResponderResources
	initiators     int     // Config.InitiatorDepth
	made           objects // created by open
}

// open creates the objects that o does not provide, and takes the QP to INIT.
func (e *endpoint) open(dev ib.Device, id ib.CMID, o *Config) error {
	e.dev, e.minRNR = dev, uint8(o.MinRNRTimer)
	e.responders, e.initiators = o.ResponderResources, o.InitiatorDepth
	e.sendCQ, e.recvCQ = o.SendCQ, o.RecvCQ
	if e.qp = o.QP; e.qp == nil {
		if err := e.makeQP(o); err != nil {
			return err
		}
	}
	attr, mask, err := id.InitQPAttr(ib.StateInit)
	if err != nil {
		return err
	}
	attr.Access = o.Access &^ ib.LocalWrite
	return e.qp.Modify(attr, mask)
}

func (e *endpoint) makeQP(o *Config) (err error) {
	if e.pd = o.PD; e.pd == nil {
		if e.pd, err = e.dev.AllocPD(); err != nil {
			return err
		}
		e.made.add(e.pd)
	}
	if e.sendCQ == nil {
		entries, err := o.entries()
		if err != nil {
			return err
		}
		if e.sendCQ, err = e.dev.CreateCQ(ib.CQInit{Entries: entries}); err != nil {
			return err
		}
		e.made.add(e.sendCQ)
	}
	if e.recvCQ == nil {
		e.recvCQ = e.sendCQ
	}
	init := ib.QPInit{Type: o.Service, SendCQ: e.sendCQ, RecvCQ: e.recvCQ, SRQ: o.SRQ, Cap: o.Cap, SigAll: o.SigAll}
	qp, err := e.pd.CreateQP(init)
	if err != nil {
		return err
	}
	e.qp = qp
	e.made.add(qp)
	return nil
}

// entries returns the number of entries for the CQ: the most completions that can be outstanding.
func (o *Config) entries() (int, error) {
	n := o.Cap.MaxSendWR
	switch {
	case o.RecvCQ != nil:
	case o.SRQ != nil:
		attr, err := o.SRQ.Query()
		if err != nil {
			return 0, err
		}
		n += attr.MaxWR
	default:
		n += o.Cap.MaxRecvWR
	}
	return max(n, 1), nil
}

// connect takes the QP from INIT to RTS with the attributes that id.InitQPAttr returns, but no more READs and atomics
// than the Config says: the peer's REP or REQ may have more. It returns the attributes that the QP got.
func (e *endpoint) connect(id ib.CMID) (attr ib.QPAttr, err error) {
	for _, state := range []ib.QPState{ib.StateRTR, ib.StateRTS} {
		var mask ib.QPAttrMask
		if attr, mask, err = id.InitQPAttr(state); err != nil {
			return attr, err
		}
		attr.MinRNRTimer = e.minRNR
		attr.MaxDestRdAtomic = min(attr.MaxDestRdAtomic, e.responders)
		attr.MaxRdAtomic = min(attr.MaxRdAtomic, e.initiators)
		if err := e.qp.Modify(attr, mask); err != nil {
			return attr, err
		}
	}
	return attr, nil
}

// fail takes the QP to ERR. A QP of the caller may be closed already.
func (e *endpoint) fail() {
	if e.qp != nil {
		_ = e.qp.Modify(ib.QPAttr{State: ib.StateErr}, ib.AttrState)
	}
}
