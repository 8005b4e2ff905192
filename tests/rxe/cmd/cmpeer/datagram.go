package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// udaddy: the client resolves the server's QPs by SIDR and sends to them, with its own QP
// number as immediate; the server answers to that QP.
type udaddy struct {
	common
	size
	Conns int    `short:"c" default:"1" help:"Queue pairs."`
	Port  int    `short:"p" default:"7174" help:"Port."`
	Host  string `arg:"" optional:"" help:"The server."`
}

func (u *udaddy) Run() error {
	return u.with(func(s *station) error {
		if u.Host != "" {
			return each(u.Conns, func(int) error { return u.ask(s) })
		}
		l, err := s.listen(u.Port, ib.UD)
		if err != nil {
			return err
		}
		defer l.Close()
		return each(u.Conns, func(int) error { return u.answer(s, l) })
	})
}

// ask runs one QP of the client.
func (u *udaddy) ask(s *station) error {
	return s.withDatagrams(u.size, func(l *lane) error {
		if err := l.postRecvs(); err != nil {
			return err
		}
		service, err := s.cm.Resolve(s, at(u.Host, u.Port), rdmacm.Config{Service: ib.UD})
		if err != nil {
			return err
		}
		if err := l.sendTo(service.AH, service.QPN, service.QKey); err != nil {
			return err
		}
		return l.receive()
	})
}

// answer runs one QP of the server.
func (u *udaddy) answer(s *station, listener *rdmacm.Listener) error {
	return s.withDatagrams(u.size, func(l *lane) error {
		if err := l.postRecvs(); err != nil {
			return err
		}
		r, err := listener.Request(s)
		if err != nil {
			return err
		}
		ah, err := r.AcceptDatagram(l.qp.Num(), rdmacm.DefaultQKey, nil)
		if err != nil {
			return err
		}
		if err := l.receive(); err != nil {
			return err
		}
		return l.sendTo(ah, ib.QPN(l.last.Imm), rdmacm.DefaultQKey)
	})
}

// mckey: one end sends to the group, the other receives.
type mckey struct {
	common
	size
	Sender bool       `short:"s" help:"Send; otherwise receive."`
	Group  netip.Addr `arg:"" help:"The group."`
}

func (m *mckey) Run() error {
	return m.with(func(s *station) error {
		return s.withDatagrams(m.size, func(l *lane) error {
			if err := l.postRecvs(); err != nil {
				return err
			}
			group, err := s.cm.Join(s, m.Group, l.qp)
			if err != nil {
				return err
			}
			if m.Sender {
				err = l.sendTo(group.AH, group.QPN, group.QKey)
			} else {
				fmt.Println("listening")
				err = l.receive()
			}
			return errors.Join(err, group.Leave())
		})
	})
}

// withDatagrams calls f with a new lane that has a UD QP, and closes it.
func (s *station) withDatagrams(m size, f func(*lane) error) error {
	l, err := s.newLane(m, grhLen)
	if err != nil {
		return err
	}
	if err = l.openUD(); err == nil {
		err = f(l)
	}
	return errors.Join(err, l.close())
}

// openUD takes a UD QP to RTS.
func (l *lane) openUD() (err error) {
	if l.qp, err = l.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: l.cq, RecvCQ: l.cq, Cap: l.capacity(),
		SigAll: true}); err != nil {
		return err
	}
	l.own(l.qp)
	for _, step := range []struct {
		attr ib.QPAttr
		mask ib.QPAttrMask
	}{
		{ib.QPAttr{State: ib.StateInit, Port: 1, QKey: rdmacm.DefaultQKey},
			ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey},
		{ib.QPAttr{State: ib.StateRTR}, ib.AttrState},
		{ib.QPAttr{State: ib.StateRTS}, ib.AttrState | ib.AttrSQPSN},
	} {
		if err := l.qp.Modify(step.attr, step.mask); err != nil {
			return err
		}
	}
	return nil
}

// sendTo sends all messages to a QP.
func (l *lane) sendTo(to ib.AHAttr, qp ib.QPN, qkey uint32) error {
	ah, err := l.pd.CreateAH(to)
	if err != nil {
		return err
	}
	l.own(ah)
	l.to = ib.SendWR{Opcode: ib.WRSendImm, Imm: uint32(l.qp.Num()), AH: ah.Num(), RemoteQPN: qp, RemoteQKey: qkey}
	return l.send()
}
