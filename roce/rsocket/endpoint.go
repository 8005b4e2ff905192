package rsocket

import (
	"context"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/goroce/goroce/ib"
)

// hostBigEndian is the byte order in which this host reads its target SGL.
var hostBigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// endpoint has what must exist before the connection: the memory that the record describes to the peer, and the CQ.
// Each endpoint has a protection domain of its own, so a peer cannot reach memory of other connections.
type endpoint struct {
	o    Options
	dev  ib.Device
	pd   ib.PD
	ch   ib.Channel
	cq   ib.CQ
	recv []ib.RecvWR // one for each entry of the receive queue; they have no memory

	buf     []byte // what the three below are parts of, on a page boundary
	send    []byte
	sendMR  ib.MR
	data    []byte // the receive buffer
	dataMR  ib.MR
	table   []uint64 // the target SGL and, behind it, the iomap; the peer writes them
	tableMR ib.MR
}

// newEndpoint creates an endpoint.
func newEndpoint(dev ib.Device, o Options) (*endpoint, error) {
	attr := dev.Attr()
	o, err := o.resolve(&attr)
	if err != nil {
		return nil, err
	}
	ep := &endpoint{o: o, dev: dev, recv: make([]ib.RecvWR, o.ReceiveQueue)}
	for i := range ep.recv {
		ep.recv[i].ID = workID(received, 0)
	}
	if err := ep.open(); err != nil {
		ep.close()
		return nil, fmt.Errorf("rsocket: %w", err)
	}
	return ep, nil
}

// open creates the objects. The CQ is armed for firstEvent.
func (ep *endpoint) open() (err error) {
	if ep.pd, err = ep.dev.AllocPD(); err != nil {
		return err
	}
	if ep.ch, err = ep.dev.CreateChannel(); err != nil {
		return err
	}
	entries := ep.o.SendQueue + ep.o.ReceiveQueue
	if ep.cq, err = ep.dev.CreateCQ(ib.CQInit{Entries: entries, Channel: ep.ch}); err != nil {
		return err
	}
	if err = ep.cq.Arm(false); err != nil {
		return err
	}
	return ep.register()
}

// register registers the memory, as one region that begins with the table.
func (ep *endpoint) register() (err error) {
	size := sglEntries*sgeLen + ep.o.MapSlots*mapEntryLen
	ep.buf = ib.Alloc(ep.dev, size+ep.o.SendBuffer+ep.o.ReceiveBuffer)
	buf, table := ep.buf, ep.buf[:size:size]
	ep.table = unsafe.Slice((*uint64)(unsafe.Pointer(&table[0])), size/8)
	ep.send, ep.data = buf[size:][:ep.o.SendBuffer:ep.o.SendBuffer], buf[size+ep.o.SendBuffer:]
	if ep.sendMR, err = ep.pd.RegMR(ib.MRInit{Buf: ep.send}); err != nil {
		return err
	}
	if ep.dataMR, err = ep.pd.RegMR(ib.MRInit{Buf: ep.data, Access: ib.LocalWrite | ib.RemoteWrite}); err != nil {
		return err
	}
	ep.tableMR, err = ep.pd.RegMR(ib.MRInit{Buf: table, Access: ib.LocalWrite | ib.RemoteWrite})
	return err
}

// record returns the record for the peer, with the first half of the receive buffer.
func (ep *endpoint) record() record {
	return record{
		bigEndian: hostBigEndian, ioMap: true, credits: uint16(ep.o.ReceiveQueue), mapSlots: ep.o.MapSlots,
		sgl:  sge{addr: ep.tableMR.Addr(), key: ep.tableMR.RKey(), length: sglEntries},
		data: sge{addr: ep.dataMR.Addr(), key: ep.dataMR.RKey(), length: uint32(len(ep.data) / 2)},
	}
}

// cap returns the capacity of the QP.
func (ep *endpoint) cap() ib.QPCap {
	return ib.QPCap{MaxSendWR: ep.o.SendQueue, MaxRecvWR: ep.o.ReceiveQueue, MaxSendSGE: 2, MaxRecvSGE: 1,
		MaxInline: ep.o.Inline}
}

// postReceives fills the receive queue of a QP in INIT.
func (ep *endpoint) postReceives(qp ib.QP) error {
	_, err := qp.PostRecv(ep.recv)
	return err
}

// firstEvent waits until something has arrived, or ctx ends.
func (ep *endpoint) firstEvent(ctx context.Context) bool {
	_, err := ep.ch.Wait(ctx)
	return err == nil
}

// close closes the objects and frees the memory. The QP must be closed already, or must not exist.
func (ep *endpoint) close() {
	for _, mr := range []ib.MR{ep.sendMR, ep.dataMR, ep.tableMR} {
		if mr != nil {
			_ = mr.Close()
		}
	}
	if ep.cq != nil {
		_ = ep.cq.Close()
	}
	if ep.ch != nil {
		_ = ep.ch.Close()
	}
	if ep.pd != nil {
		_ = ep.pd.Close()
	}
	if ep.buf != nil {
		ib.Free(ep.dev, ep.buf)
		ep.buf, ep.send, ep.data, ep.table = nil, nil, nil, nil
	}
}
