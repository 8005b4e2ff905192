package script

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr"
	"github.com/goroce/goroce/qp"
	"github.com/goroce/goroce/qp/ring"
	"github.com/goroce/goroce/wire"
)

// endpoint is a QP with the application's ends of its rings. Its methods do what the
// engine does for a QP.
type endpoint struct {
	*host
	name  string
	num   ib.QPN
	peer  ib.QPN
	cfg   config
	qp    *qp.QP
	stats qp.Stats
	flow  *qp.Flow

	sq     *ring.Send
	rq     *ring.Recv
	sendCQ completions
	recvCQ completions
	late   []mr.Placement // under way, oldest first
	reads  []qp.Fetch     // likewise

	// Outputs that no step has claimed.
	packets []packet
	wcs     []wc
	events  []string
	dirty   bool // there was an input since the last NextPackets
}

// completions is a completion queue, seen from both ends.
type completions struct {
	name   string // "send", "recv", or for an XRC SRQ "srq=7"
	device *qp.CQ
	app    *ring.CQ
}

// newEndpoint makes a QP of a host, in RESET.
func newEndpoint(h *host, name string, num, peer ib.QPN, cfg config) (*endpoint, error) {
	e := &endpoint{host: h, name: name, num: num, peer: peer, cfg: cfg,
		flow: qp.NewFlow(qp.FlowConfig{Control: cfg.control, Window: 128})}
	e.cfg.attr.DestQPN = peer
	e.cfg.attr.AH = ib.AHAttr{DGID: ib.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: byte(peer)}, Port: 1}
	if h.teller == nil {
		h.teller = e
	}
	if cfg.shared > 0 {
		if err := e.share(); err != nil {
			return nil, err
		}
	}
	if !qp.Sends(cfg.typ) {
		e.cfg.cap.MaxSendWR = 0
	}
	return e, e.makeQP()
}

// share makes the QP take receives from the SRQ of the host.
func (e *endpoint) share() error {
	e.cfg.cap.MaxRecvWR = 0
	if e.srq(0) != nil {
		return nil
	}
	return e.newSRQ(0, e.cfg.shared, e.pd, completions{}, nil)
}

// makeQP makes the rings and the QP that uses them.
func (e *endpoint) makeQP() error {
	c := &e.cfg.cap
	sqBytes := ring.Alloc(ring.SendSize(c.MaxSendWR, c.MaxSendSGE, c.MaxInline))
	sq, err := ring.NewSend(sqBytes, c.MaxSendWR, c.MaxSendSGE, c.MaxInline)
	if err != nil {
		return err
	}
	rqBytes := ring.Alloc(ring.RecvSize(c.MaxRecvWR, c.MaxRecvSGE))
	rq, err := ring.NewRecv(rqBytes, c.MaxRecvWR, c.MaxRecvSGE)
	if err != nil {
		return err
	}
	if e.sq, err = ring.OpenSend(sqBytes); err != nil {
		return err
	}
	if e.rq, err = ring.OpenRecv(rqBytes); err != nil {
		return err
	}
	for _, q := range []*completions{&e.sendCQ, &e.recvCQ} {
		if err := q.make(e.cfg.cq); err != nil {
			return err
		}
	}
	e.sendCQ.name, e.recvCQ.name = "send", "recv"
	mtu := ib.MTU4096
	if qp.Datagram(e.cfg.typ) {
		mtu = e.cfg.attr.PathMTU // datagrams have no path MTU, only the port's MTU
		if !mtu.Valid() {
			return fmt.Errorf("MTU %d; allowed: 256, 512, 1024, 2048 and 4096", mtu)
		}
	}
	cfg := qp.Config{
		Num: e.num, Type: e.cfg.typ, Table: e.table, PD: e.pd, SQ: sq, RQ: rq,
		SendCQ: e.sendCQ.device, RecvCQ: e.recvCQ.device, Cap: *c, SigAll: e.cfg.sigAll,
		XRCD: &e.xrcd, SRQs: e.host, AHs: e.host,
		Limits: &qp.Limits{GIDs: 1, MTU: mtu, MaxRdAtomic: 16, Reorder: qp.NewReorder(1)}, Stats: &e.stats,
		AckDelay: e.cfg.ackNS, MaxLate: e.cfg.late, Trains: e.cfg.trains, Probe: e.cfg.probe,
	}
	if e.cfg.shared > 0 {
		cfg.SRQ = e.srq(0).device
	}
	e.qp = qp.New(cfg)
	return nil
}

func (q *completions) make(entries int) error {
	b := ring.Alloc(ring.CQSize(entries))
	device, err := ring.NewCQ(b, entries)
	if err != nil {
		return err
	}
	q.device = qp.NewCQ(device, nil)
	q.app, err = ring.OpenCQ(b)
	return err
}

// start takes the QP from RESET to the state that the scene starts in.
func (e *endpoint) start(now ib.Instant) error {
	for to := ib.StateInit; e.qp.State() != e.cfg.started && to <= ib.StateRTS; to++ {
		mask := ib.Required(e.cfg.typ, to)
		if to == ib.StateRTS && e.cfg.attr.RateLimit != 0 {
			mask |= ib.AttrRateLimit
		}
		if err := e.modify(now, to, &e.cfg.attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// modify modifies the QP, and sets its Flow in the transition to RTR.
func (e *endpoint) modify(now ib.Instant, to ib.QPState, attr *ib.QPAttr, mask ib.QPAttrMask) error {
	a := *attr
	a.State = to
	from := e.qp.State()
	if err := e.qp.Modify(now, &a, mask); err != nil {
		return err
	}
	if from != to && to == ib.StateRTR {
		e.flow.SetSelective(e.cfg.sack)
		e.qp.SetFlow(e.flow)
	}
	e.input()
	return nil
}

// input is called after every input and collects the QP's effects.
func (e *endpoint) input() {
	e.dirty = true
	e.effects()
}

// effects stores the QP's effects, for steps that carry them out or claim them, and
// reports whether the QP has more to send.
func (e *endpoint) effects() (send bool) {
	effects := e.qp.Effects()
	e.late = append(e.late, effects.Placements...)
	e.reads = append(e.reads, effects.Fetches...)
	for t := range effects.Events.All() {
		e.events = append(e.events, "event "+eventNames[t])
	}
	return effects.Send
}

// pump asks for packets as the engine does, batch at a time, and collects the
// other outputs.
func (e *endpoint) pump(now ib.Instant, batch int) error {
	if e.dirty {
		e.dirty = false
		if e.qp.Deadline() <= now {
			e.qp.HandleTimeout(now)
		}
		for {
			out := make([]qp.TxPacket, batch)
			e.encode(now, expand(out[:e.qp.NextPackets(now, out)]))
			e.qp.Sent(now)
			if !e.effects() {
				break
			}
		}
		if at := e.qp.Deadline(); at <= now {
			return fmt.Errorf("%s: the deadline is %v, now is %v: the engine would spin", e.name, at, now)
		}
	}
	e.collect()
	return nil
}

// expand returns the packets of trains as separate elements.
func expand(txs []qp.TxPacket) (all []qp.TxPacket) {
	for _, tx := range txs {
		for all = append(all, tx); tx.Train > 0; all = append(all, tx) {
			tx.Advance(1)
		}
	}
	return all
}

// encode turns TxPackets into packets. It reads the payload, once.
func (e *endpoint) encode(now ib.Instant, txs []qp.TxPacket) {
	for i := range txs {
		tx := &txs[i]
		b := tx.AppendHeaders(nil)
		payload := make([]byte, tx.Len+tx.Pad())
		if tx.Inline != nil {
			copy(payload[:tx.Len], tx.Inline)
		} else if err := mr.Gather(payload[:tx.Len], tx.SGL, tx.Off); err != nil {
			e.qp.SendFailed(now, tx)
			return
		}
		var p packet
		if tx.AH != nil {
			p.ah = tx.AH.Owner.(ib.AHNum)
		}
		if err := p.Decode(append(b, payload...)); err != nil {
			p.err = err
		}
		e.packets = append(e.packets, p)
	}
}

// collect takes completions and events.
func (e *endpoint) collect() {
	e.poll(&e.sendCQ)
	e.poll(&e.recvCQ)
	for _, s := range e.srqs {
		if e.host.teller != e {
			break
		}
		if s.num != 0 {
			e.poll(&s.cq)
		}
		for t, ok := s.device.TakeEvent(); ok; t, ok = s.device.TakeEvent() {
			e.events = append(e.events, "event "+eventNames[t])
		}
	}
}

// poll takes the completions and events of a completion queue.
func (e *endpoint) poll(q *completions) {
	var buf [4]ib.WC
	for n := q.app.Poll(buf[:]); n > 0; n = q.app.Poll(buf[:]) {
		for _, c := range buf[:n] {
			c.Timestamp = 0 // scripts claim no timestamps
			e.wcs = append(e.wcs, wc{WC: c, queue: q.name})
		}
	}
	if q.device.TakeNotify() {
		e.events = append(e.events, "notify "+q.name)
	}
	if q.device.TakeError() {
		e.events = append(e.events, "event "+eventNames[ib.EventCQErr])
	}
}

// receive passes a packet from the wire to the QP.
func (e *endpoint) receive(now ib.Instant, p packet) {
	if qp.Datagram(e.cfg.typ) {
		var grh [ib.GRHLen]byte
		fill(grh[:], grhName, 0)
		e.qp.HandleDatagram(now, &p.Packet, &grh)
	} else {
		e.qp.HandlePackets(now, []wire.Packet{p.Packet})
	}
	e.input()
}

// grhName is the name in scripts of the global route header of a datagram.
const grhName = "GRH"

// mostDescribed bounds the packets that unclaimed describes: the search for where their bytes come from takes long.
const mostDescribed = 8

// unclaimed describes outputs that no step has claimed; empty if there are none.
func (e *endpoint) unclaimed(r *runner) string {
	var list []string
	for i := range e.packets {
		if i == mostDescribed {
			list = append(list, fmt.Sprintf("%d more packets", len(e.packets)-i))
			break
		}
		list = append(list, r.arrow(e)+" "+r.describe(&e.packets[i]))
	}
	for i := range e.wcs {
		list = append(list, e.wcs[i].String())
	}
	list = append(list, e.events...)
	return strings.Join(list, "; ")
}
