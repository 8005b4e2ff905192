// Package stopandwait moves messages over unreliable datagrams: each has a number, the receiver acknowledges it, and
// the sender repeats it until then (stop and wait). Its test runs both ends on a network that loses, repeats, delays
// and swaps a good part of all packets.
//
//	go test ./examples/faults/stopandwait                                  # twenty networks
//	go test ./examples/faults/stopandwait -run Transfer -simtest.seed=7    # one of them
package stopandwait

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/goroce/goroce/ib"
)

const (
	maxLen   = 64
	buffers  = 8
	headLen  = 4                    // number of the message
	ack      = 1 << 31              // in the number: this is its acknowledgement
	qkey     = 0x1234               // of both ends
	patience = 5 * time.Millisecond // before a message is sent again
)

// Peer is one end. It may be used by one goroutine.
type Peer struct {
	qp             ib.QP
	sendCQ, recvCQ ib.CQ
	buf            []byte
	mr             ib.MR
	to             ib.SendWR // where datagrams go
	next           uint32    // number of the next message

	Repeated int // messages that had to be sent again
}

// NewPeer makes an end on a device.
func NewPeer(dev ib.Device) (p *Peer, pd ib.PD, err error) {
	p = &Peer{buf: ib.Alloc(dev, buffers*(ib.GRHLen+maxLen))}
	if pd, err = dev.AllocPD(); err != nil {
		return nil, nil, err
	}
	if p.sendCQ, err = dev.CreateCQ(ib.CQInit{Entries: 1}); err != nil {
		return nil, nil, err
	}
	if p.recvCQ, err = dev.CreateCQ(ib.CQInit{Entries: buffers}); err != nil {
		return nil, nil, err
	}
	if p.mr, err = pd.RegMR(ib.MRInit{Buf: p.buf, Access: ib.LocalWrite}); err != nil {
		return nil, nil, err
	}
	if p.qp, err = pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: p.sendCQ, RecvCQ: p.recvCQ,
		Cap: ib.QPCap{MaxSendWR: 1, MaxInline: maxLen, MaxRecvWR: buffers, MaxRecvSGE: 1}}); err != nil {
		return nil, nil, err
	}
	if err = ib.ModifyTo(p.qp, ib.QPAttr{Port: 1, QKey: qkey}, ib.StateInit, ib.StateRTR, ib.StateRTS); err != nil {
		return nil, nil, err
	}
	for id := range uint64(buffers) {
		if err = p.post(id); err != nil {
			return nil, nil, err
		}
	}
	return p, pd, nil
}

// Connect says where datagrams go: ah is an address handle of the device.
func (p *Peer) Connect(ah ib.AH, peer ib.QPN) {
	p.to = ib.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, AH: ah.Num(), RemoteQPN: peer,
		RemoteQKey: qkey}
}

// Send sends a message and returns when the peer has it.
func (p *Peer) Send(ctx context.Context, message string) error {
	for {
		if err := p.datagram(ctx, p.next, message); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		err := p.acknowledged(wait)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			p.next++
			return err
		}
		p.Repeated++
	}
}

// acknowledged waits for the acknowledgement of the current message. Those of earlier ones may still come.
func (p *Peer) acknowledged(ctx context.Context) error {
	for {
		number, _, err := p.receive(ctx)
		if err != nil || number == p.next|ack {
			return err
		}
	}
}

// Receive returns the next message. It acknowledges others too, since the peer repeats those whose acknowledgement was
// lost.
func (p *Peer) Receive(ctx context.Context) (string, error) {
	for {
		number, message, err := p.receive(ctx)
		if err != nil {
			return "", err
		}
		if err := p.datagram(ctx, number|ack, ""); err != nil {
			return "", err
		}
		if number == p.next {
			p.next++
			return message, nil
		}
	}
}

func (p *Peer) datagram(ctx context.Context, number uint32, payload string) error {
	wr := p.to
	wr.Inline = append(binary.BigEndian.AppendUint32(nil, number), payload...)
	if _, err := p.qp.PostSend([]ib.SendWR{wr}); err != nil {
		return err
	}
	_, err := ib.WaitOne(ctx, p.sendCQ)
	return err
}

// receive returns the next datagram that has a number.
func (p *Peer) receive(ctx context.Context) (number uint32, payload string, err error) {
	for {
		wc, err := ib.WaitOne(ctx, p.recvCQ)
		if err != nil {
			return 0, "", err
		}
		datagram := append([]byte(nil), p.buf[wc.ID*(ib.GRHLen+maxLen):][ib.GRHLen:wc.ByteLen]...)
		if err := p.post(wc.ID); err != nil {
			return 0, "", err
		}
		if len(datagram) >= headLen {
			return binary.BigEndian.Uint32(datagram), string(datagram[headLen:]), nil
		}
	}
}

func (p *Peer) post(id uint64) error {
	const n = ib.GRHLen + maxLen
	_, err := p.qp.PostRecv([]ib.RecvWR{{ID: id, SGL: []ib.SGE{p.mr.SGE(int(id)*n, n)}}})
	return err
}
