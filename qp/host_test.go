package qp

import (
	"slices"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/wire"
)

// host is a QP with its rings and memory, for tests of this package. Tests of protocol
// rules are scripts in testdata instead.
type host struct {
	t       testing.TB
	q       *QP
	sq      *ring.Send
	rq      *ring.Recv // of the QP, or of its SRQ
	sendCQ  *ring.CQ
	recvCQ  *ring.CQ // of the QP, or of its XRC SRQ
	srq     *SRQ
	xrcd    XRCD
	ah      *AH
	due     Due
	table   *mr.Table
	pd      *mr.PD
	mem     []byte
	region  *mr.Region // over mem
	slow    *mrtest.Memory
	slowReg *mr.Region // over slow
	stats   Stats
	flow    *Flow

	sqBytes, rqBytes []byte // buffers of the rings, for tests that corrupt them

	out  []TxPacket // of emit
	todo struct {   // Effects that the test has not taken yet
		placements []mr.Placement
		fetches    []Fetch
		events     []ib.EventType
	}
}

const (
	memSize  = 1 << 20
	memAddr  = 0x10000000
	slowAddr = 0x20000000
)

const allAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.FlushGlobal

// Numbers of the only SRQ and the only address handle of a host.
const (
	srqNum uint32   = 7
	ahNum  ib.AHNum = 1
)

// SRQ and AH implement SRQs and AHs for the QP.
func (h *host) SRQ(num uint32) *SRQ {
	if num == srqNum {
		return h.srq
	}
	return nil
}

func (h *host) AH(num ib.AHNum) *AH {
	if num == ahNum {
		return h.ah
	}
	return nil
}

// newHost makes an RC QP in RESET.
func newHost(t testing.TB, num ib.QPN) *host { return newServiceHost(t, ib.RC, num, false) }

// hostEntries is the capacity of the queues of a host.
const hostEntries = 128

// newServiceHost makes a QP of any service in RESET, whose receives come from an
// SRQ if shared. Those of XRC targets always do.
func newServiceHost(t testing.TB, typ ib.QPType, num ib.QPN, shared bool) *host {
	t.Helper()
	h := &host{t: t, mem: ring.Alloc(memSize), slow: mrtest.New(4096), flow: NewFlow(FlowConfig{Window: 128})}
	variant := uint8(num)
	h.table = mr.NewTable(8, mr.CountedKeys(func() uint8 { variant++; return variant }))
	var err error
	h.pd, err = h.table.NewPD()
	h.must(err)
	h.region, err = h.table.Register(h.pd, mr.Bytes(h.mem), memAddr, allAccess)
	h.must(err)
	h.slowReg, err = h.table.Register(h.pd, h.slow, slowAddr, allAccess)
	h.must(err)
	h.ah = &AH{PD: h.pd}

	cfg := Config{
		Num: num, Type: typ, Table: h.table, PD: h.pd, XRCD: &h.xrcd, SRQs: h, AHs: h,
		Cap:    ib.QPCap{MaxSendWR: hostEntries, MaxRecvWR: hostEntries, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
		Limits: &Limits{GIDs: 1, MTU: ib.MTU4096, MaxRdAtomic: 16, Recorders: NewRecorders(1), Reorder: NewReorder(1)},
		Stats:  &h.stats, Due: &h.due, MaxLate: 4,
	}
	h.sqBytes = ring.Alloc(ring.SendSize(hostEntries, 4, 64))
	cfg.SQ, err = ring.NewSend(h.sqBytes, hostEntries, 4, 64)
	h.must(err)
	h.sq, err = ring.OpenSend(h.sqBytes)
	h.must(err)
	cfg.SendCQ, h.sendCQ = h.newCQ()
	cfg.RecvCQ, h.recvCQ = h.newCQ()
	cfg.RQ = h.newRecv()
	switch {
	case typ == ib.XRCTGT:
		cq, app := h.newCQ()
		h.srq, h.recvCQ = NewSRQ(h.newRecv(), h.pd, cq, &h.xrcd, nil), app
	case shared:
		h.srq = NewSRQ(h.newRecv(), h.pd, nil, nil, nil)
		cfg.SRQ = h.srq
	}
	h.q = New(cfg)
	return h
}

// newCQ makes a completion queue and returns both ends.
func (h *host) newCQ() (*CQ, *ring.CQ) {
	b := ring.Alloc(ring.CQSize(2 * hostEntries))
	device, err := ring.NewCQ(b, 2*hostEntries)
	h.must(err)
	app, err := ring.OpenCQ(b)
	h.must(err)
	return NewCQ(device, nil), app
}

// newRecv makes a receive ring, which postRecv uses from here on, and returns the
// device's end.
func (h *host) newRecv() *ring.Recv {
	h.rqBytes = ring.Alloc(ring.RecvSize(hostEntries, 4))
	device, err := ring.NewRecv(h.rqBytes, hostEntries, 4)
	h.must(err)
	h.rq, err = ring.OpenRecv(h.rqBytes)
	h.must(err)
	return device
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// PSNs and QP numbers of two connected hosts.
const (
	ourNum, peerNum ib.QPN = 0x11, 0x22
	ourPSN, peerPSN ib.PSN = 100, 500

	ourQKey uint32 = 9
)

// goodAttr has a valid value for every attribute of a QP whose peer is peer.
func goodAttr(peer ib.QPN, sq, rq ib.PSN) ib.QPAttr {
	return ib.QPAttr{
		Port: 1, QKey: ourQKey, Access: ib.QPAccessMask, PathMTU: ib.MTU1024, DestQPN: peer, RQPSN: rq, SQPSN: sq,
		AH:          ib.AHAttr{DGID: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: byte(peer)}, Port: 1},
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

// modify changes state with a as the attributes.
func (h *host) modify(to ib.QPState, a ib.QPAttr, mask ib.QPAttrMask) error {
	a.State = to
	from := h.q.State()
	err := h.q.Modify(0, &a, mask|ib.AttrState)
	if err == nil && from != to && to == ib.StateRTR {
		h.q.SetFlow(h.flow)
	}
	return err
}

// up takes the QP from RESET towards RTS, up to the given state.
func (h *host) up(to ib.QPState, a ib.QPAttr) {
	h.t.Helper()
	for s := ib.StateInit; s <= to; s++ {
		h.must(h.modify(s, a, rowOf(h.q.Type(), s-1, s).mask()))
	}
}

// connected returns two RC hosts in RTS.
func connected(t testing.TB) (a, b *host) { return connectedBy(t, ib.RC, false) }

// connectedBy returns two hosts of a service in RTS. The responder's receives may
// come from an SRQ.
func connectedBy(t testing.TB, typ ib.QPType, shared bool) (a, b *host) {
	peer := typ
	if typ == ib.XRCINI {
		peer = ib.XRCTGT
	}
	a, b = newServiceHost(t, typ, ourNum, false), newServiceHost(t, peer, peerNum, shared)
	a.up(ib.StateRTS, goodAttr(peerNum, ourPSN, peerPSN))
	b.up(ib.StateRTS, goodAttr(ourNum, peerPSN, ourPSN))
	return a, b
}

// sge returns an SGE of n bytes of the host's memory.
func (h *host) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: memAddr + uint64(off), Length: uint32(n), LKey: h.region.Key()}
}

// post posts a send request and rings the doorbell.
func (h *host) post(wr *ib.SendWR) {
	h.t.Helper()
	h.must(h.sq.Push(wr))
	h.sq.Publish()
	h.q.Doorbell(0)
}

// postRecv posts a receive and rings the doorbell.
func (h *host) postRecv(wr *ib.RecvWR) {
	h.t.Helper()
	h.must(h.rq.Push(wr))
	h.rq.Publish()
	h.q.Doorbell(0)
}

// request returns a packet of the peer.
func request(op wire.Opcode, psn ib.PSN, payload []byte) wire.Packet {
	return wire.Packet{
		BTH: wire.BTH{Opcode: op, PKey: ib.DefaultPKey, DestQP: ourNum, PSN: psn, AckReq: true}, Payload: payload,
	}
}

// ack returns the peer's ACK.
func ack(psn, msn ib.PSN) wire.Packet {
	p := request(wire.RCAck, psn, nil)
	p.AckReq = false
	p.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: msn}
	return p
}

// handle passes one packet to the QP.
func (h *host) handle(now ib.Instant, p wire.Packet) {
	if Datagram(h.q.Type()) {
		h.q.HandleDatagram(now, &p, new([ib.GRHLen]byte))
		return
	}
	h.q.HandlePackets(now, []wire.Packet{p})
}

// emit returns the packets that are sent now, asking for at most batch at a time.
func (h *host) emit(now ib.Instant, batch int) (out []TxPacket) {
	if len(h.out) != batch {
		h.out = make([]TxPacket, batch)
	}
	buf := h.out
	for {
		n := 0
		for _, tx := range buf[:h.q.NextPackets(now, buf)] {
			n += 1 + tx.Train
			for out = append(out, tx); tx.Train > 0; out = append(out, tx) {
				tx.Advance(1)
			}
		}
		if n > batch {
			h.t.Fatalf("%d packets, want at most %d", n, batch)
		}
		h.q.Sent(now)
		if !h.effects() {
			return out
		}
	}
}

// effects stores the QP's effects, and reports whether it has more to send.
func (h *host) effects() (send bool) {
	e := h.q.Effects()
	h.todo.placements = append(h.todo.placements, e.Placements...)
	h.todo.fetches = append(h.todo.fetches, e.Fetches...)
	h.todo.events = slices.AppendSeq(h.todo.events, e.Events.All())
	return e.Send
}

// placements returns the placements that were not returned before.
func (h *host) placements() []mr.Placement {
	h.effects()
	list := h.todo.placements
	h.todo.placements = nil
	return list
}

// fetches returns the fetches that were not returned before.
func (h *host) fetches() []Fetch {
	h.effects()
	list := h.todo.fetches
	h.todo.fetches = nil
	return list
}

// events returns the events that were not returned before.
func (h *host) events() []ib.EventType {
	h.effects()
	list := h.todo.events
	h.todo.events = nil
	return list
}
