package explain

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/link/mem"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/wire"
)

// helloRefused shows a device whose peer is played as rdma_rxe answers.
var helloRefused = lesson{
	name:  "hello-refused",
	title: "A peer that is not goroce refuses the hello, and gets go-back-N",
	group: "loss",
	rule:  "goroce",
	why: []string{
		"SACKs are not of the architecture, so a peer has to know of them. When a packet was lost, and not before, a " +
			"device says hello to the other address: a management datagram (MAD) of a vendor's class to QP 1, which " +
			"every port has. Another goroce answers with its own hello (`goroced explain sack`). Linux answers that " +
			"it does not support the class (ib_mad, generate_unmatched_resp), and other devices do so, or do not " +
			"answer. Then everything stays as IBTA has it: the responder drops what comes behind a gap, and the " +
			"requester goes back to the first lost packet and sends all from there on again.",
		"A hello is never needed. The peer's QPs see nothing of it, and it is sent three times at most if nobody " +
			"answers; after that, or after a no, a minute passes before a loss leads to another one.",
	},
	show: showHelloRefused,
}

const (
	unsupported = 0x0C // status of a MAD: method and attribute are not supported (IBTA 13.4.7)
	peerQPN     = 0x22
	peerPSN     = 500
)

// strictPeer plays a host whose responder is strict, and that does not know hellos.
type strictPeer struct {
	link.Link
	p        *page
	qpn      ib.QPN // of the QP that it talks to
	expected ib.PSN
	lose     ib.PSN // the first packet with this PSN is lost
	msn      ib.PSN
	told     bool // of the gap
	err      error
}

// showHelloRefused shows two losses: one leads to a hello, the next one does not.
func showHelloRefused(p *page) (err error) {
	network := mem.NewNetwork()
	peer := &strictPeer{p: p, expected: 100, lose: 101,
		Link: wrap.Seal(network.Open([]ib.GID{cmGID(1)}, mem.Options{}))}
	dev, err := roce.Open(wrap.Seal(network.Open([]ib.GID{cmGID(0)}, mem.Options{})),
		roce.Options{Manual: true, Seed: 1})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dev.Close(); err == nil {
			err = cerr
		}
	}()
	p.begin("goroce 192.0.2.1", "strict 192.0.2.2")
	o := &node{dev: dev}
	if err := o.connect(); err != nil {
		return err
	}
	peer.qpn = o.qp.Num()
	for i, lose := range []ib.PSN{101, 105} {
		if i > 0 {
			p.ladder.Note("The next loss asks nothing: it is known what the peer is.")
		}
		peer.lose = lose
		if err := o.write(p, peer, ib.Instant(i)*ib.Instant(time.Millisecond)); err != nil {
			return err
		}
	}
	p.endScene()
	return nil
}

// connect makes an RC QP in RTS whose first PSN is 100.
func (o *node) connect() (err error) {
	if o.pd, err = o.dev.AllocPD(); err != nil {
		return err
	}
	if o.mr, err = o.pd.RegMR(ib.MRInit{Buf: make([]byte, 4096)}); err != nil {
		return err
	}
	if o.cq, err = o.dev.CreateCQ(ib.CQInit{Entries: 4}); err != nil {
		return err
	}
	if o.qp, err = o.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: o.cq, RecvCQ: o.cq,
		Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return err
	}
	return ib.ModifyTo(o.qp, ib.QPAttr{Port: 1, AH: ib.AHAttr{DGID: cmGID(1), Port: 1}, PathMTU: ib.MTU1024,
		DestQPN: peerQPN, RQPSN: peerPSN, SQPSN: 100, Timeout: 14, RetryCnt: 7, RNRRetry: 7},
		ib.StateInit, ib.StateRTR, ib.StateRTS)
}

// write writes 4 KiB, from a time on, until that has completed.
func (o *node) write(p *page, peer *strictPeer, from ib.Instant) error {
	p.ladder.Local(from, true, "post write len=4096")
	_, err := o.qp.PostSend([]ib.SendWR{{Opcode: ib.WRWrite, Flags: ib.SendSignaled, SGL: o.sge(4096)}})
	if err != nil {
		return err
	}
	for now := from; now < from+ib.Instant(time.Millisecond); now += 20_000 {
		for o.dev.Step(now) || peer.step(now) {
		}
		if peer.err != nil {
			return peer.err
		}
		var wc [1]ib.WC
		if n, err := o.cq.Poll(wc[:]); err != nil {
			return err
		} else if n == 1 {
			p.ladder.Local(now, true, fmt.Sprintf("completion: write %v", wc[0].Status))
		}
	}
	return nil
}

// step handles what has arrived, and reports whether something has.
func (s *strictPeer) step(now ib.Instant) bool {
	var in [8]link.Run
	n, err := s.Recv(now, in[:])
	if err != nil {
		s.err = err
		return false
	}
	for i := range in[:n] {
		run := &in[i]
		for f := range run.Frames() {
			var packet wire.Packet
			frame := run.Frame(f)
			if s.err = packet.Decode(frame[:len(frame)-wire.ICRCLen]); s.err != nil {
				return false
			}
			s.handle(now, &packet)
		}
	}
	return n > 0
}

func (s *strictPeer) handle(now ib.Instant, p *wire.Packet) {
	if mad := p.MAD(); mad != nil {
		s.refuse(now, p, mad)
		return
	}
	arrow := s.p.ladder.Packet(now, true, trace.ShortLabel(p))
	switch {
	case p.PSN == s.lose:
		s.lose, arrow.Lost = 0, true
	case p.PSN == s.expected:
		s.told = false
		s.expected = p.PSN.Add(1)
		if p.Opcode.Ends() {
			s.msn++
		}
		if p.AckReq {
			s.answer(now, p.PSN, wire.AckNoCredits)
		}
	case !s.told:
		arrow.Note = "dropped: it is not the one that is expected"
		s.told = true
		s.answer(now, s.expected, wire.NAKSequence)
	default:
		arrow.Note = "dropped"
	}
}

// answer sends an ACK or a NAK.
func (s *strictPeer) answer(now ib.Instant, psn ib.PSN, syndrome wire.Syndrome) {
	s.send(now, &wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PKey: ib.DefaultPKey, DestQP: s.qpn, PSN: psn},
		AETH: wire.AETH{Syndrome: syndrome, MSN: s.msn}})
}

// refuse draws a hello, and answers that its class is not supported.
func (s *strictPeer) refuse(now ib.Instant, p *wire.Packet, mad *[wire.MADLen]byte) {
	var h wire.MADHeader
	h.Decode(mad)
	_, says := decode.MADText(mad)
	s.p.ladder.Packet(now, true, "MAD to QP 1: hello").Note = says
	h.Method, h.Status = 0x81, unsupported // GetResp
	answer := *mad
	h.Put(&answer)
	_, says = decode.MADText(&answer)
	s.p.ladder.Packet(now, false, "MAD to QP 1: not supported").Note = fmt.Sprintf("%s, status %#02x", says, h.Status)
	packet := wire.Packet{BTH: wire.BTH{Opcode: p.Opcode, PKey: ib.DefaultPKey, DestQP: 1},
		DETH: wire.DETH{QKey: p.DETH.QKey, SrcQP: 1}, Payload: answer[:]}
	s.transmit(now, &packet)
}

func (s *strictPeer) send(now ib.Instant, p *wire.Packet) {
	s.p.ladder.Packet(now, false, trace.ShortLabel(p))
	s.transmit(now, p)
}

// transmit sends a packet to the device.
func (s *strictPeer) transmit(now ib.Instant, p *wire.Packet) {
	frame := append(p.AppendHeaders(nil), p.Payload...)
	frame = append(frame, make([]byte, wire.ICRCLen)...)
	run := link.Run{Src: cmGID(1), Dst: cmGID(0), SrcPort: 49152, HopLimit: 64, Size: len(frame), Buf: frame}
	if _, err := s.Send(now, []link.Run{run}); err != nil {
		s.err = err
	}
}
