package rdmacm

import (
	"errors"
	"io"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
)

// objects are things that were made, in order.
type objects []io.Closer

func (o *objects) add(c io.Closer) { *o = append(*o, c) }

// close closes the last first, and all that can be. It may be called again.
func (o objects) close() error {
	var errs []error
	for i := len(o) - 1; i >= 0; i-- {
		errs = append(errs, o[i].Close())
	}
	return errors.Join(errs...)
}

// endpoint is the QP of a connection and what it works with.
type endpoint struct {
	dev            ib.Device
	qp             ib.QP
	pd             ib.PD
	sendCQ, recvCQ ib.CQ
	minRNR         uint8
	made           objects // by us
}

// open makes what o leaves to be made, and takes the QP to INIT.
func (e *endpoint) open(dev ib.Device, o *Config) error {
	e.dev, e.minRNR = dev, uint8(o.MinRNRTimer)
	e.sendCQ, e.recvCQ = o.SendCQ, o.RecvCQ
	if e.qp = o.QP; e.qp == nil {
		if err := e.makeQP(o); err != nil {
			return err
		}
	}
	return e.qp.Modify(ib.QPAttr{State: ib.Init, Port: 1, Access: o.Access &^ ib.LocalWrite}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess)
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

// entries is how much can be outstanding on the CQ that is made.
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

// connect takes the QP from INIT to RTS. UC knows neither responses nor retries.
func (e *endpoint) connect(path *cm.Path, p *cm.ConnParams) error {
	ah, err := addressVector(e.dev, path)
	if err != nil {
		return err
	}
	attr := ib.QPAttr{
		State: ib.RTR, AH: ah, PathMTU: p.PathMTU, DestQPN: p.RemoteQPN, RQPSN: p.RQPSN,
		MaxDestRdAtomic: int(p.ResponderResources), MinRNRTimer: e.minRNR,
		SQPSN: p.SQPSN, MaxRdAtomic: int(p.InitiatorDepth), Timeout: p.AckTimeout, RetryCnt: p.RetryCount, RNRRetry: p.RNRRetry,
	}
	rtr := ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	rts := ib.AttrState | ib.AttrSQPSN
	if e.qp.Type() == ib.RC {
		rtr |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		rts |= ib.AttrMaxRdAtomic | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry
	}
	if err := e.qp.Modify(attr, rtr); err != nil {
		return err
	}
	attr.State = ib.RTS
	return e.qp.Modify(attr, rts)
}

// fail takes the QP to ERR. A QP of the caller's may be closed by now.
func (e *endpoint) fail() {
	if e.qp != nil {
		_ = e.qp.Modify(ib.QPAttr{State: ib.Err}, ib.AttrState)
	}
}
