package perf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// qkey is the C tool's Q_Key; queue pairs that are connected by rdma_cm use rdma_cm's.
const qkey = 0x11111111

// Work request IDs have the kind of request, the index of the queue pair, and the number of requests that the
// completion stands for.
const (
	recvID     = 0
	sendID     = 1
	kindBits   = 1
	indexBits  = 15 // maxQP fits
	countShift = kindBits + indexBits
)

func workID(kind, qp, count int) uint64 {
	return uint64(kind) | uint64(qp)<<kindBits | uint64(count)<<countShift
}

func workKind(id uint64) int    { return int(id & (1<<kindBits - 1)) }
func workIndex(id uint64) int   { return int(id >> kindBits & (1<<indexBits - 1)) }
func workCount(id uint64) int64 { return int64(id >> countShift) }

// endpoint has the queue pairs of an end with their memory.
type endpoint struct {
	device.Owned
	o       *Options
	t       *traits
	meeting meeting
	cycle   int // length of the piece that small messages use in turn
	size    int // bytes of a message

	pd    ib.PD
	mr    ib.MR
	cq    ib.CQ
	qps   []ib.QP
	ahs   []ib.AH // UD: the peer of each queue pair
	qkey  uint32  // UD: of all queue pairs
	conns []*rdmacm.Conn

	mem           *memory
	local, remote []address

	stock    []int // posted receives, by queue pair
	recvs    []ib.RecvWR
	recvList []ib.SGE

	schedule schedule
	patience patience
	done     atomic.Int64 // number of messages, for the progress
	wcs      [64]ib.WC
}

// newEndpoint creates the queue pairs, and takes them to INIT unless rdma_cm does.
func newEndpoint(dev ib.Device, s *session) (e *endpoint, err error) {
	e = &endpoint{o: s.o, t: s.t, meeting: s.meeting, cycle: s.cycle, qkey: qkey, mem: newMemory(dev, s.o, s.cycle)}
	if s.o.CM {
		e.qkey = rdmacm.DefaultQKey
	}
	for _, step := range []func() error{
		func() error { return e.open(dev) },
		e.openQPs,
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	e.addresses(s.gid.GID)
	return e, nil
}

// open creates the objects that the queue pairs need.
func (e *endpoint) open(dev ib.Device) (err error) {
	if e.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	e.Own(e.pd)
	if e.mr, err = e.pd.RegMR(ib.MRInit{Buf: e.mem.buf, Access: e.t.access}); err != nil {
		return err
	}
	e.Own(e.mr)
	entries := e.o.NumQP * (e.o.sendDepth() + e.o.RxDepth)
	if e.cq, err = dev.CreateCQ(ib.CQInit{Entries: entries}); err != nil {
		return err
	}
	e.Own(e.cq)
	return nil
}

// openQPs makes the queue pairs.
func (e *endpoint) openQPs() error {
	init := ib.QPInit{Type: qpTypes[e.o.Service], SendCQ: e.cq, RecvCQ: e.cq,
		Cap: ib.QPCap{MaxSendWR: e.o.sendDepth(), MaxSendSGE: 1, MaxInline: e.o.Inline, MaxRecvWR: e.o.RxDepth,
			MaxRecvSGE: 1}}
	for range e.o.NumQP {
		qp, err := e.pd.CreateQP(init)
		if err != nil {
			return err
		}
		e.Own(qp)
		e.qps = append(e.qps, qp)
		if e.o.CM && !e.o.datagrams() {
			continue
		}
		attr := ib.QPAttr{Port: 1, QKey: e.qkey, Access: e.t.access & ib.QPAccessMask}
		if err := ib.ModifyTo(qp, attr, ib.StateInit); err != nil {
			return err
		}
	}
	e.stock = make([]int, e.o.NumQP)
	return nil
}

// Close closes the objects, last first.
func (e *endpoint) Close() error {
	e.schedule.cancel()
	return e.Owned.Close()
}

// addresses sets the addresses to send to the peer.
func (e *endpoint) addresses(gid ib.GID) {
	outstanding := 1
	if e.o.fetches() {
		outstanding = e.o.Outstanding
	}
	for i, qp := range e.qps {
		e.local = append(e.local,
			address{outstanding: outstanding, qpn: qp.Num(), psn: ib.PSN(rand.Uint32()) & ib.PSNMask, rkey: e.mr.RKey(),
				vaddr: e.mr.Addr() + uint64(e.mem.in(i)), gid: gid})
	}
	e.remote = make([]address, len(e.qps))
}

// hopLimit is the C tool's.
const hopLimit = 64

// connect takes the queue pairs to RTS, with the attributes of the C tools.
func (e *endpoint) connect(sgid int) error {
	for i, qp := range e.qps {
		local, remote := &e.local[i], &e.remote[i]
		if local.gid.Is4() != remote.gid.Is4() {
			return fmt.Errorf("%w: this end's GID is %v and the peer's %v; choose two of one IP version (-x)",
				ErrExchange, local.gid.Addr(), remote.gid.Addr())
		}
		attr := ib.QPAttr{
			PathMTU: e.o.MTU, DestQPN: remote.qpn, RQPSN: remote.psn, MaxDestRdAtomic: local.outstanding,
			MinRNRTimer: 12,
			AH:          ib.AHAttr{DGID: remote.gid, SGIDIndex: sgid, Port: 1, HopLimit: hopLimit},
			SQPSN:       local.psn, MaxRdAtomic: min(remote.outstanding, e.maxOutstanding()),
			Timeout: uint8(e.o.AckTimeout), RetryCnt: uint8(e.o.RetryCount), RNRRetry: 7,
		}
		if err := ib.ModifyTo(qp, attr, ib.StateRTR, ib.StateRTS); err != nil {
			return err
		}
		if !e.o.datagrams() {
			continue
		}
		if err := e.addAH(attr.AH); err != nil {
			return err
		}
	}
	return nil
}

// addAH creates the address handle for the next queue pair.
func (e *endpoint) addAH(attr ib.AHAttr) error {
	ah, err := e.pd.CreateAH(attr)
	if err != nil {
		return err
	}
	e.Own(ah)
	e.ahs = append(e.ahs, ah)
	return nil
}

// maxOutstanding returns how many READs and atomics this end keeps in flight.
func (e *endpoint) maxOutstanding() int {
	if e.o.fetches() {
		return e.o.Outstanding
	}
	return 1
}

// restock posts receives where few are left, up to RxDepth. They share an area, because nobody looks at the data.
func (e *endpoint) restock() error {
	if !e.o.receives() {
		return nil
	}
	for i := range e.qps {
		if err := e.restockQP(i); err != nil {
			return err
		}
	}
	return nil
}

// recvBatch is the number of receives that are posted at once.
const recvBatch = 64

func (e *endpoint) restockQP(i int) error {
	if e.recvs == nil {
		e.recvs, e.recvList = make([]ib.RecvWR, recvBatch), make([]ib.SGE, len(e.qps))
		for i := range e.recvList {
			e.recvList[i] = ib.SGE{Addr: e.local[i].vaddr, Length: uint32(e.mem.area), LKey: e.mr.LKey()}
		}
	}
	for e.stock[i] < e.o.RxDepth {
		batch := e.recvs[:min(recvBatch, e.o.RxDepth-e.stock[i])]
		for j := range batch {
			batch[j] = ib.RecvWR{ID: workID(recvID, i, 1), SGL: e.recvList[i : i+1]}
		}
		n, err := e.qps[i].PostRecv(batch)
		e.stock[i] += n
		if err != nil {
			return err
		}
	}
	return nil
}
