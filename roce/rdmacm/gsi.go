package rdmacm

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// qkeyGSI is the Q_Key of all general services QPs (IBTA 10.2.5).
const qkeyGSI = 0x80010000

// Queues of the general services QP. Messages for which there is no entry wait in
// the state machine.
const (
	recvSlots = 256
	sendSlots = 64
	slotSize  = ib.GRHLen + wire.MADLen
)

// gsi is the general services QP and what it takes to use it. Work requests have
// the number of their slot as ID: those of sends first.
type gsi struct {
	dev   ib.Device
	pd    ib.PD
	ch    ib.Channel
	cq    ib.CQ
	mr    ib.MR
	qp    ib.QP
	buf   []byte           // the receive slots
	sends [sendSlots]ib.AH // where those under way go
	free  []int            // send slots
	msg   cm.Message       // to send next
	made  objects
}

// openGSI makes the QP and takes it to RTS.
func openGSI(dev ib.Device) (*gsi, error) {
	g := &gsi{dev: dev, buf: make([]byte, recvSlots*slotSize)}
	for i := range sendSlots {
		g.free = append(g.free, i)
	}
	err := g.open()
	if err == nil {
		err = g.start()
	}
	if err != nil {
		return nil, errors.Join(explainGSI(err), g.close())
	}
	return g, nil
}

// open makes the objects.
func (g *gsi) open() (err error) {
	if g.pd, err = g.dev.AllocPD(); err != nil {
		return err
	}
	g.made.add(g.pd)
	if g.ch, err = g.dev.CreateChannel(); err != nil {
		return err
	}
	g.made.add(g.ch)
	if g.cq, err = g.dev.CreateCQ(ib.CQInit{Entries: recvSlots + sendSlots, Channel: g.ch}); err != nil {
		return err
	}
	g.made.add(g.cq)
	if g.mr, err = g.pd.RegMR(ib.MRInit{Buf: g.buf, Access: ib.LocalWrite}); err != nil {
		return err
	}
	g.made.add(g.mr)
	cap := ib.QPCap{MaxSendWR: sendSlots, MaxRecvWR: recvSlots, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: wire.MADLen}
	if g.qp, err = g.pd.CreateQP(ib.QPInit{Type: ib.GSI, SendCQ: g.cq, RecvCQ: g.cq, Cap: cap, SigAll: true}); err != nil {
		return err
	}
	g.made.add(g.qp)
	return nil
}

// start posts the receives and takes the QP to RTS.
func (g *gsi) start() error {
	if err := g.cq.Arm(false); err != nil {
		return err
	}
	if err := g.qp.Modify(ib.QPAttr{State: ib.Init, QKey: qkeyGSI}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrQKey); err != nil {
		return err
	}
	slots := make([]int, recvSlots)
	for i := range slots {
		slots[i] = i
	}
	if err := g.post(slots); err != nil {
		return err
	}
	if err := g.qp.Modify(ib.QPAttr{State: ib.RTR}, ib.AttrState); err != nil {
		return err
	}
	return g.qp.Modify(ib.QPAttr{State: ib.RTS}, ib.AttrState|ib.AttrSQPSN)
}

// explainGSI says what to do about a device without a QP 1 for us.
func explainGSI(err error) error {
	switch {
	case errors.Is(err, ib.ErrBusy):
		return fmt.Errorf("%w: this device has one connection manager; use the one that is open, or close it", err)
	case errors.Is(err, ib.ErrNotSupported):
		return fmt.Errorf("%w: on an RNIC the kernel's rdma_cm owns QP 1; connect with librdmacm there, or use the software device", err)
	}
	return err
}

// serve has requests for a service ID at a GID, or at all if that is zero, come to this
// QP, where a device has several.
func (g *gsi) serve(service uint64, local ib.GID) error {
	q, ok := g.qp.(ib.ServiceQP)
	if !ok {
		return nil
	}
	err := q.Serve(service, allBits, local)
	if errors.Is(err, ib.ErrBusy) {
		return fmt.Errorf("%w: %w", cm.ErrInUse, err)
	}
	return err
}

// unserve takes it back. It fails on a device that is closed, where nothing comes.
func (g *gsi) unserve(service uint64, local ib.GID) {
	if q, ok := g.qp.(ib.ServiceQP); ok {
		_ = q.Unserve(service, allBits, local)
	}
}

// allBits is the mask of one service ID.
const allBits = ^uint64(0)

// close closes everything. A QP in use has requests under way, which end with it.
func (g *gsi) close() error {
	if g.qp != nil {
		if err := g.qp.Close(); err != nil {
			return err
		}
	}
	for _, ah := range g.sends {
		if ah != nil {
			_ = ah.Close()
		}
	}
	return g.made.close()
}

// slot returns the memory of a receive.
func (g *gsi) slot(i int) []byte { return g.buf[i*slotSize : (i+1)*slotSize] }

// post gives receive slots to the device.
func (g *gsi) post(slots []int) error {
	wrs := make([]ib.RecvWR, len(slots))
	for i, slot := range slots {
		sge := ib.SGE{Addr: g.mr.Addr() + uint64(slot*slotSize), Length: slotSize, LKey: g.mr.LKey()}
		wrs[i] = ib.RecvWR{ID: uint64(sendSlots + slot), SGL: []ib.SGE{sge}}
	}
	_, err := g.qp.PostRecv(wrs)
	return err
}

// transmit posts messages while there are send slots. A message that the device
// does not take counts as lost on the way: the state machine sends it again.
func (g *gsi) transmit(m *cm.Manager) {
	for len(g.free) > 0 && m.NextMessage(&g.msg) {
		slot := g.free[len(g.free)-1]
		if ah, err := g.send(slot); err == nil {
			g.free = g.free[:len(g.free)-1]
			g.sends[slot] = ah
		} else if ah != nil {
			_ = ah.Close()
		}
	}
}

// send posts g.msg.
func (g *gsi) send(slot int) (ib.AH, error) {
	attr, err := addressVector(g.dev, &g.msg.Path)
	if err != nil {
		return nil, err
	}
	ah, err := g.pd.CreateAH(attr)
	if err != nil {
		return nil, err
	}
	_, err = g.qp.PostSend([]ib.SendWR{{ID: uint64(slot), Opcode: ib.WRSend, Flags: ib.SendInline, Inline: g.msg.MAD[:],
		AH: ah.Num(), RemoteQPN: ib.QPNGSI, RemoteQKey: qkeyGSI}})
	return ah, err
}

// sent takes the slot of a send back.
func (g *gsi) sent(slot int) {
	_ = g.sends[slot].Close()
	g.sends[slot] = nil
	g.free = append(g.free, slot)
}

// run receives until ctx ends or the device is of no more use.
func (c *CM) run(ctx context.Context) {
	defer close(c.stopped)
	wcs := make([]ib.WC, 32)
	for {
		_, err := c.gsi.ch.Wait(ctx)
		if err == nil {
			err = c.gsi.cq.Arm(false)
		}
		for n := 1; n > 0 && err == nil; {
			if n, err = c.gsi.cq.Poll(wcs); n > 0 {
				err = c.complete(wcs[:n])
			}
		}
		if err != nil {
			c.shut(fmt.Errorf("connection manager of %s: %w", c.dev.Attr().Name, err))
			return
		}
	}
}

// complete takes completions of the general services QP. It fails if the QP has.
func (c *CM) complete(wcs []ib.WC) error {
	gids, err := c.dev.GIDs(1)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var used []int
	for i := range wcs {
		wc := &wcs[i]
		if wc.ID < sendSlots {
			c.gsi.sent(int(wc.ID))
			continue
		}
		if err := wc.Err(); err != nil {
			return err
		}
		slot := int(wc.ID - sendSlots)
		used = append(used, slot)
		if c.err == nil {
			c.handle(gids, wc, c.gsi.slot(slot)[:wc.ByteLen])
		}
	}
	if c.err == nil {
		c.settle()
	} else {
		c.gsi.transmit(c.m)
		c.checkFlushed()
	}
	return c.gsi.post(used)
}

// checkFlushed tells Close that a closed CM has no message under way any more.
func (c *CM) checkFlushed() {
	if c.err == nil || len(c.gsi.free) < sendSlots {
		return
	}
	select {
	case <-c.flushed:
	default:
		close(c.flushed)
	}
}

// handle gives a datagram to the state machine: b is the GRH and the MAD. Events
// are taken out at once, for they may refer to b.
func (c *CM) handle(gids []ib.GIDEntry, wc *ib.WC, b []byte) {
	back, err := ib.AHFromWC(gids, wc, b)
	if err != nil {
		return // to an address that is ours no more
	}
	path := cm.Path{Remote: back.DGID, FlowLabel: back.FlowLabel, TrafficClass: back.TrafficClass}
	for i := range gids {
		if gids[i].Index == back.SGIDIndex {
			path.Local = gids[i].GID
		}
	}
	c.m.Handle(c.now(), path, b[ib.GRHLen:])
	c.dispatch()
}
