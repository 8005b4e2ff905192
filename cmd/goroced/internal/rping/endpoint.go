package rping

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Work request IDs.
const (
	idRecv = 1 + iota
	idSend
	idRDMA
)

// endpoint is an end of a connection, with the memory for messages.
type endpoint struct {
	device.Owned // the connection, too

	o       *Options
	pd      ib.PD
	cq      ib.CQ
	dev     ib.Device
	message []byte // buffer of received messages
	mr      ib.MR  // of message

	conn    *rdmacm.Conn // set by Prepare
	longest int          // bytes of the longest message that was begun
	passed  int          // pings that have succeeded
}

// newEndpoint creates the objects for a connection.
func newEndpoint(dev ib.Device, o *Options) (*endpoint, error) {
	e := &endpoint{o: o, dev: dev}
	e.message = e.memory(messageLen)
	if err := e.open(dev); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *endpoint) open(dev ib.Device) (err error) {
	if e.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	e.Own(e.pd)
	c := queues()
	if e.cq, err = dev.CreateCQ(ib.CQInit{Entries: c.MaxSendWR + c.MaxRecvWR}); err != nil {
		return err
	}
	e.Own(e.cq)
	e.mr, err = e.register(e.message, ib.LocalWrite)
	return err
}

// memory returns n bytes, which close frees.
func (e *endpoint) memory(n int) []byte {
	buf := ib.Alloc(e.dev, n)
	e.Own(freed{e.dev, buf})
	return buf
}

// freed is memory that Close frees.
type freed struct {
	dev ib.Device
	buf []byte
}

func (f freed) Close() error {
	ib.Free(f.dev, f.buf)
	return nil
}

// register registers memory, until close.
func (e *endpoint) register(b []byte, access ib.Access) (ib.MR, error) {
	mr, err := e.pd.RegMR(ib.MRInit{Buf: b, Access: access})
	if err != nil {
		return nil, err
	}
	e.Own(mr)
	return mr, nil
}

// queues returns the capacity of the QP. At most four requests are outstanding; the rest is as in the C tool.
func queues() ib.QPCap {
	return ib.QPCap{MaxSendWR: 16, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: messageLen}
}

// config returns the C tool's connection parameters. Prepare posts the first receive before the peer can send.
func (e *endpoint) config(access ib.Access) rdmacm.Config {
	return rdmacm.Config{
		PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, Cap: queues(), Access: access,
		ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetry: 7, AckTimeout: e.o.AckTimeout,
		PathMTU: e.o.MTU,
		Prepare: func(c *rdmacm.Conn) error {
			e.conn = c
			return e.postRecv()
		},
	}
}

func (e *endpoint) postRecv() error {
	_, err := e.conn.QP().PostRecv([]ib.RecvWR{{ID: idRecv, SGL: sgl(e.mr, messageLen)}})
	return err
}

// sgl returns the SGL of the first bytes of a region.
func sgl(mr ib.MR, length int) []ib.SGE {
	return []ib.SGE{mr.SGE(0, length)}
}

// send posts a message.
func (e *endpoint) send(p place) error {
	_, err := e.conn.QP().PostSend([]ib.SendWR{{ID: idSend, Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline,
		Inline: p.encode()}})
	return err
}

// receive waits for a message and posts the next receive.
func (e *endpoint) receive(ctx context.Context) (p place, err error) {
	wc, err := e.await(ctx, idRecv)
	if err != nil {
		return p, err
	}
	if wc.ByteLen != messageLen {
		return p, fmt.Errorf("%w: its message has %d bytes, not %d", ErrProtocol, wc.ByteLen, messageLen)
	}
	p = decodePlace((*[messageLen]byte)(e.message))
	return p, e.postRecv()
}

// rdma READs or WRITEs the first length bytes of mr from or to the peer's memory.
func (e *endpoint) rdma(ctx context.Context, op ib.WROpcode, mr ib.MR, length int, peer place) error {
	_, err := e.conn.QP().PostSend([]ib.SendWR{{ID: idRDMA, Opcode: op, Flags: ib.SendSignaled, SGL: sgl(mr, length),
		RemoteAddr: peer.addr, RKey: peer.rkey}})
	if err != nil {
		return err
	}
	e.longest = max(e.longest, length)
	_, err = e.await(ctx, idRDMA)
	return err
}

// await waits for the completion of the request with that ID. SENDs may complete at any time; other requests complete
// in order.
func (e *endpoint) await(ctx context.Context, id uint64) (ib.WC, error) {
	for {
		wc, err := e.next(ctx)
		if err == nil {
			err = wc.Err()
		}
		switch {
		case err != nil:
			return wc, e.explain(ctx, err)
		case wc.ID == id:
			return wc, nil
		case wc.ID != idSend:
			return wc, fmt.Errorf("%w: it sent a message out of turn", ErrProtocol)
		}
	}
}

// next returns the next completion. Like the C tool it sleeps until there is one.
func (e *endpoint) next(ctx context.Context) (ib.WC, error) {
	var wc [1]ib.WC
	_, err := waiting.Completions(ctx, e.cq, wc[:], e.o.Timeout, e.o.Log, "%v to go on, %v at most",
		e.conn.RemoteAddr(), e.o.Timeout)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: nothing from %v for %v", ErrSilent, e.conn.RemoteAddr(), e.o.Timeout)
	}
	return wc[0], err
}
