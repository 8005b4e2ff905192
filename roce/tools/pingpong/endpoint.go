package pingpong

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/goroce/goroce/ib"
)

// Work request IDs, as in the C tool: bits, so that a set of them fits a number.
const (
	recvID = 1
	sendID = 2
)

// endpoint is a queue pair with its memory.
type endpoint struct {
	o       *Options
	dev     ib.Device
	pd      ib.PD
	mr      ib.MR
	channel ib.Channel
	cq      ib.CQ
	qp      ib.QP

	// What is sent and where messages arrive. It is one piece of memory, so that
	// the server returns what it got, unless data are checked: then what arrives
	// must not already stand there.
	sendBuf, recvBuf []byte
	recvOff          int
	posted           int // receives
}

// newEndpoint makes a queue pair, takes it to INIT and posts receives.
func newEndpoint(dev ib.Device, o *Options) (e *endpoint, err error) {
	e = &endpoint{o: o, dev: dev}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	buf := make([]byte, o.Size)
	if o.Check {
		e.recvOff = o.Size
		buf = make([]byte, 2*o.Size)
	}
	e.sendBuf, e.recvBuf = buf[:o.Size], buf[e.recvOff:]
	wipe(e.recvBuf)
	fillPattern(e.sendBuf, o.Check)
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	if e.mr, err = e.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite}); err != nil {
		return e, err
	}
	if e.channel, err = dev.CreateChannel(); err != nil {
		return e, err
	}
	if e.cq, err = dev.CreateCQ(ib.CQInit{Entries: o.RxDepth + 1, Channel: e.channel}); err != nil {
		return e, err
	}
	cap := ib.QPCap{MaxSendWR: 1, MaxRecvWR: o.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1}
	if e.qp, err = e.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: e.cq, RecvCQ: e.cq, Cap: cap}); err != nil {
		return e, err
	}
	attr := ib.QPAttr{State: ib.Init, Port: o.IBPort}
	if err = e.qp.Modify(attr, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess); err != nil {
		return e, err
	}
	if err = e.cq.Arm(false); err != nil {
		return e, err
	}
	return e, e.refill()
}

// address returns what to tell the peer, but for the GID.
func (e *endpoint) address() address {
	return address{qpn: e.qp.Num(), psn: ib.PSN(rand.Uint32()) & ib.PSNMask}
}

// connect takes the queue pair to RTS, with the C tool's settings.
func (e *endpoint) connect(local, remote *address, sgid int) error {
	if remote.gid == (ib.GID{}) {
		return fmt.Errorf("%w: the peer has no GID, without which there is no RoCE; start it with -g INDEX (`ibv_devinfo -v` lists them)", ErrExchange)
	}
	attr := ib.QPAttr{
		State: ib.RTR, PathMTU: e.o.MTU, DestQPN: remote.qpn, RQPSN: remote.psn, MaxDestRdAtomic: 1, MinRNRTimer: 12,
		AH:    ib.AHAttr{DGID: remote.gid, SGIDIndex: sgid, Port: e.o.IBPort, HopLimit: 1},
		SQPSN: local.psn, MaxRdAtomic: 1, Timeout: uint8(e.o.AckTimeout), RetryCnt: uint8(e.o.RetryCount), RNRRetry: 7,
	}
	err := e.qp.Modify(attr, ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer)
	if err != nil {
		return err
	}
	attr.State = ib.RTS
	return e.qp.Modify(attr, ib.AttrState|ib.AttrSQPSN|ib.AttrMaxRdAtomic|ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry)
}

// refill posts receives up to Options.RxDepth.
func (e *endpoint) refill() error {
	wr := []ib.RecvWR{{ID: recvID, SGL: e.sge(e.recvOff)}}
	for ; e.posted < e.o.RxDepth; e.posted++ {
		if _, err := e.qp.PostRecv(wr); err != nil {
			return err
		}
	}
	return nil
}

// post sends the message.
func (e *endpoint) post() error {
	_, err := e.qp.PostSend([]ib.SendWR{{ID: sendID, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: e.sge(0)}})
	return err
}

func (e *endpoint) sge(off int) []ib.SGE {
	return []ib.SGE{{Addr: e.mr.Addr() + uint64(off), Length: uint32(e.o.Size), LKey: e.mr.LKey()}}
}

// close frees what was made, last first.
func (e *endpoint) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.channel != nil {
		errs = append(errs, e.channel.Close())
	}
	if e.mr != nil {
		errs = append(errs, e.mr.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	return errors.Join(errs...)
}
