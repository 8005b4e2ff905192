package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// grhLen is the length of the GRH before a received datagram in memory.
const grhLen = 40

// size has the count and the length of the messages of a lane.
type size struct {
	Count int `short:"C" default:"10" help:"Messages."`
	Size  int `short:"S" default:"100" help:"Bytes of a message."`
}

// lane sends and receives the messages of one QP: a fixed count of one size, all received
// into one buffer and sent from another, as the C programs do.
type lane struct {
	*station
	size
	headroom int // before a received message
	mr       ib.MR
	cq       ib.CQ
	qp       ib.QP
	to       ib.SendWR // for datagrams: the destination
	owned    []io.Closer

	sent, received int
	last           ib.WC // of the latest receive
}

// newLane allocates the memory and the CQ of a lane.
func (s *station) newLane(m size, headroom int) (l *lane, err error) {
	l = &lane{station: s, size: m, headroom: headroom, to: ib.SendWR{Opcode: ib.WRSend}}
	buf := make([]byte, headroom+2*m.Size)
	for i := range m.Size {
		buf[headroom+m.Size+i] = byte(i)
	}
	if l.mr, err = s.pd.RegMR(ib.MRInit{Buf: buf, Access: ib.LocalWrite}); err != nil {
		return nil, err
	}
	l.own(l.mr)
	if l.cq, err = s.dev.CreateCQ(ib.CQInit{Entries: 2*m.Count + 1}); err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.own(l.cq)
	return l, nil
}

func (l *lane) own(c io.Closer) { l.owned = append(l.owned, c) }

func (l *lane) close() error {
	var errs []error
	for _, c := range slices.Backward(l.owned) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (l *lane) capacity() ib.QPCap {
	n := max(l.Count, 1)
	return ib.QPCap{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1}
}

// config returns the configuration of a connection for the lane's messages. The limits of
// READs and atomics, and the retries, are those of ucmatose.
func (l *lane) config() rdmacm.Config {
	return rdmacm.Config{
		PD: l.pd, SendCQ: l.cq, Cap: l.capacity(), SigAll: true, ResponderResources: 1, InitiatorDepth: 1,
		RetryCount: 5,
		Prepare: func(c *rdmacm.Conn) error {
			l.qp = c.QP()
			return l.postRecvs()
		},
	}
}

func (l *lane) postRecvs() error {
	wr := ib.RecvWR{SGL: l.sgl(0, l.headroom+l.Size)}
	for range l.Count {
		if _, err := l.qp.PostRecv([]ib.RecvWR{wr}); err != nil {
			return err
		}
	}
	return nil
}

// send sends all messages and waits until they are complete.
func (l *lane) send() error {
	wr := l.to
	wr.SGL = l.sgl(l.headroom+l.Size, l.Size)
	for range l.Count {
		if _, err := l.qp.PostSend([]ib.SendWR{wr}); err != nil {
			return err
		}
	}
	return l.await("sends", &l.sent)
}

// receive waits for all messages.
func (l *lane) receive() error { return l.await("receives", &l.received) }

// await waits until all sends, or all receives, are complete.
func (l *lane) await(what string, n *int) error {
	for *n < l.Count {
		var wcs [16]ib.WC
		got, err := l.cq.Wait(l, wcs[:])
		if err != nil {
			return fmt.Errorf("%d of %d %s are complete: %w", *n, l.Count, what, err)
		}
		for i := range wcs[:got] {
			if err := l.complete(&wcs[i]); err != nil {
				return fmt.Errorf("%d sent and %d received of %d: %w", l.sent, l.received, l.Count, err)
			}
		}
	}
	return nil
}

func (l *lane) complete(wc *ib.WC) error {
	if err := wc.Err(); err != nil {
		return err
	}
	if wc.Opcode != ib.WCRecv {
		l.sent++
		return nil
	}
	l.received++
	l.last = *wc
	if int(wc.ByteLen) != l.headroom+l.Size {
		return fmt.Errorf("a message of %d bytes, want %d", wc.ByteLen, l.headroom+l.Size)
	}
	return nil
}

func (l *lane) sgl(offset, length int) []ib.SGE {
	return []ib.SGE{l.mr.SGE(offset, length)}
}
