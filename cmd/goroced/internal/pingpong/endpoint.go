package pingpong

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
)

// Work request IDs. The low bits are those of the C tool and may be combined to a set; the upper bits are the slot of a
// receive.
const (
	recvID  = 1
	sendID  = 2
	kindIDs = recvID | sendID
	slotBit = 2
)

// endpoint has the queue pairs of an end with their memory.
type endpoint struct {
	device.Owned
	*traits
	o     *Options
	gids  []ib.GIDEntry
	local []address

	pd    ib.PD
	mr    ib.MR
	cq    ib.CQ
	qps   []ib.QP
	recvs receiver    // where receives are posted
	sends []ib.SendWR // the SEND of each queue pair, once it is connected

	mem  *memory
	free []int // slots of receives that are not posted
}

// receiver is where receives are posted: a queue pair, or the SRQ of several.
type receiver interface {
	PostRecv(wrs []ib.RecvWR) (int, error)
}

// newEndpoint creates the queue pairs, takes them to INIT and posts receives.
func newEndpoint(dev ib.Device, o *Options) (e *endpoint, err error) {
	e = &endpoint{traits: o.Service.traits(), o: o, mem: newMemory(dev, o)}
	for slot := range o.RxDepth {
		e.free = append(e.free, slot)
	}
	for _, step := range []func() error{
		func() error { return e.open(dev) },
		e.openQPs,
		e.refill,
		func() (err error) {
			e.gids, err = dev.GIDs(o.IBPort)
			return err
		},
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	e.local = e.addresses()
	return e, nil
}

// open creates the objects that the queue pairs need.
func (e *endpoint) open(dev ib.Device) (err error) {
	if e.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	e.Own(e.pd)
	if e.mr, err = e.pd.RegMR(ib.MRInit{Buf: e.mem.buf, Access: ib.LocalWrite}); err != nil {
		return err
	}
	e.Own(e.mr)
	if e.cq, err = dev.CreateCQ(ib.CQInit{Entries: e.o.RxDepth + e.o.NumQP}); err != nil {
		return err
	}
	e.Own(e.cq)
	return nil
}

// openQPs creates the queue pairs, and the SRQ if they share one.
func (e *endpoint) openQPs() error {
	init := ib.QPInit{Type: e.qpType, SendCQ: e.cq, RecvCQ: e.cq, Cap: ib.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}
	if e.shared {
		srq, err := e.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: e.o.RxDepth, MaxSGE: 1}})
		if err != nil {
			return err
		}
		e.Own(srq)
		init.SRQ, e.recvs = srq, srq
	} else {
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = e.o.RxDepth, 1
	}
	for range e.o.NumQP {
		qp, err := e.pd.CreateQP(init)
		if err != nil {
			return err
		}
		e.Own(qp)
		e.qps = append(e.qps, qp)
		if err := ib.ModifyTo(qp, ib.QPAttr{Port: e.o.IBPort, QKey: qkey}, ib.StateInit); err != nil {
			return err
		}
	}
	if !e.shared {
		e.recvs = e.qps[0]
	}
	return nil
}

// addresses returns the addresses for the peer, without GID.
func (e *endpoint) addresses() []address {
	addrs := make([]address, len(e.qps))
	for i, qp := range e.qps {
		addrs[i] = address{qpn: qp.Num(), psn: ib.PSN(rand.Uint32())&ib.PSNMask | markPSN}
	}
	return addrs
}

// connect takes the queue pairs to RTS, with the attributes of the C tools.
func (e *endpoint) connect(local, remote []address, sgid int) error {
	for i := range e.qps {
		if err := e.connectQP(i, &local[i], &remote[i], sgid); err != nil {
			return err
		}
	}
	return nil
}

func (e *endpoint) connectQP(i int, local, remote *address, sgid int) error {
	if remote.gid == (ib.GID{}) {
		return fmt.Errorf("%w: the peer has no GID, without which there is no RoCE; start it with -g INDEX "+
			"(`ibv_devinfo -v` lists them)", ErrExchange)
	}
	attr := ib.QPAttr{
		PathMTU: e.o.MTU, DestQPN: remote.qpn, RQPSN: remote.psn, MaxDestRdAtomic: 1, MinRNRTimer: 12,
		AH:    ib.AHAttr{DGID: remote.gid, SGIDIndex: sgid, Port: e.o.IBPort, HopLimit: 1},
		SQPSN: local.psn, MaxRdAtomic: 1, Timeout: uint8(e.o.AckTimeout), RetryCnt: uint8(e.o.RetryCount), RNRRetry: 7,
	}
	if err := ib.ModifyTo(e.qps[i], attr, ib.StateRTR, ib.StateRTS); err != nil {
		return err
	}
	wr := ib.SendWR{ID: sendID, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: e.sgl(e.mem.send, e.o.Size)}
	if e.datagrams {
		ah, err := e.pd.CreateAH(attr.AH)
		if err != nil {
			return err
		}
		e.Own(ah)
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah.Num(), remote.qpn, qkey
	}
	e.sends = append(e.sends, wr)
	return nil
}

// refill posts receives up to Options.RxDepth.
func (e *endpoint) refill() error {
	for n := len(e.free) - 1; n >= 0; n-- {
		slot := e.free[n]
		wr := ib.RecvWR{ID: recvID | uint64(slot)<<slotBit, SGL: e.sgl(e.mem.offset(slot), e.mem.stride)}
		if _, err := e.recvs.PostRecv([]ib.RecvWR{wr}); err != nil {
			return err
		}
		e.free = e.free[:n]
	}
	return nil
}

// post sends the message.
func (e *endpoint) post(i int) error {
	_, err := e.qps[i].PostSend(e.sends[i : i+1])
	return err
}

func (e *endpoint) sgl(offset, length int) []ib.SGE {
	return []ib.SGE{e.mr.SGE(offset, length)}
}
