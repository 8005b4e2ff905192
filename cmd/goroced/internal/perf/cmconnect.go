package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// connectCM connects the queue pairs by rdma_cm, in step with the peer: the C tools swap empty addresses before and
// afterwards.
func (s *session) connectCM() error {
	if err := s.swapNothing(); err != nil {
		return err
	}
	for i := range s.e.qps {
		if err := s.join(i); err != nil {
			return fmt.Errorf("connect queue pair %d by rdma_cm: %w", i, err)
		}
	}
	if err := s.cm.stopListening(); err != nil {
		return err
	}
	return s.swapNothing()
}

func (s *session) swapNothing() error {
	return s.meeting.swap(s.meeting.encode(&address{}), make([]byte, binaryLen), s.o.Timeout)
}

// join connects queue pair i.
func (s *session) join(i int) error {
	ctx, cancel := context.WithTimeout(s.cm.ctx, s.o.Timeout)
	defer cancel()
	switch {
	case s.o.datagrams() && s.o.server():
		return s.offer(ctx, i)
	case s.o.datagrams():
		return s.resolve(ctx, i)
	}
	conn, err := s.joinConn(ctx, s.e.qps[i])
	if err != nil {
		return err
	}
	s.e.Own(conn)
	s.e.conns = append(s.e.conns, conn)
	return nil
}

func (s *session) joinConn(ctx context.Context, qp ib.QP) (conn *rdmacm.Conn, err error) {
	o := s.o
	config := rdmacm.Config{Service: qpTypes[o.Service], QP: qp, Access: s.t.access & ib.QPAccessMask,
		Local: s.cm.source(), RetryCount: orNone(o.RetryCount), AckTimeout: o.AckTimeout, ResponderResources: -1,
		InitiatorDepth: -1}
	if o.fetches() {
		config.ResponderResources, config.InitiatorDepth = o.Outstanding, o.Outstanding
	}
	if o.server() {
		r, err := s.cm.request(ctx, s.cm.listener)
		if err != nil {
			return nil, err
		}
		return r.Accept(ctx, config)
	}
	config.PathMTU = o.MTU
	err = s.cm.untilListening(ctx, func() error {
		if err := qp.Modify(ib.QPAttr{State: ib.StateReset}, ib.AttrState); err != nil { // it is in ERR after a failure
			return err
		}
		conn, err = s.cm.cm.Dial(ctx, s.cm.server(), config)
		return err
	})
	return conn, err
}

// request waits for the next request of the client. Requests of other hosts are rejected.
func (m *cmMeeting) request(ctx context.Context, l *rdmacm.Listener) (*rdmacm.Request, error) {
	for {
		r, err := l.Request(ctx)
		if err != nil || r.RemoteAddr().Addr() == m.conn.RemoteAddr().Addr() {
			return r, err
		}
		_ = r.Reject(nil) // fails if the host has given up
	}
}

// listenEach is the interval at which a client tries to connect: the C tool starts to listen only after the preceding
// step.
const listenEach = 50 * time.Millisecond

// untilListening calls f again as long as nobody listens.
func (m *cmMeeting) untilListening(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !notListening(err) {
			return err
		}
		select {
		case <-time.After(listenEach):
		case <-ctx.Done():
			return err
		}
	}
}

func (m *cmMeeting) stopListening() error {
	if !m.o.server() {
		return nil
	}
	err := m.listener.Close()
	if m.datagrams != nil {
		err = errors.Join(err, m.datagrams.Close())
	}
	return err
}

// offer answers the client's request for datagrams to queue pair i.
func (s *session) offer(ctx context.Context, i int) error {
	if err := s.e.readyDatagrams(i); err != nil {
		return err
	}
	r, err := s.cm.request(ctx, s.cm.datagrams)
	if err != nil {
		return err
	}
	ah, err := r.AcceptDatagram(s.e.qps[i].Num(), s.e.qkey, nil)
	if err != nil {
		return err
	}
	return s.e.addAH(ah)
}

// resolve asks for the destination of queue pair i's datagrams.
func (s *session) resolve(ctx context.Context, i int) (err error) {
	if err := s.e.readyDatagrams(i); err != nil {
		return err
	}
	var peer *rdmacm.Service
	err = s.cm.untilListening(ctx, func() error {
		peer, err = s.cm.cm.Resolve(ctx, s.cm.server(), rdmacm.Config{Service: ib.UD, Local: s.cm.source()})
		return err
	})
	if err != nil {
		return err
	}
	s.e.qkey = peer.QKey
	if err := s.e.addAH(peer.AH); err != nil || !s.o.bothSend() {
		return err
	}
	return s.e.introduce(ctx, i, peer.QPN)
}

// readyDatagrams takes UD queue pair i from INIT to RTS.
func (e *endpoint) readyDatagrams(i int) error {
	return ib.ModifyTo(e.qps[i], ib.QPAttr{SQPSN: e.local[i].psn}, ib.StateRTR, ib.StateRTS)
}

// introduce sends the datagram from which the C tools' servers learn the client's QPN, and which they wait for. Servers
// of goroce have no receive for it and drop it, because the address that follows has the QPN, too.
func (e *endpoint) introduce(ctx context.Context, i int, peer ib.QPN) error {
	_, err := e.qps[i].PostSend([]ib.SendWR{{Opcode: ib.WRSendImm, Flags: ib.SendSignaled, Imm: uint32(e.qps[i].Num()),
		SGL: []ib.SGE{e.mr.SGE(0, 4)}, AH: e.ahs[i].Num(), RemoteQPN: peer,
		RemoteQKey: e.qkey}})
	if err != nil {
		return err
	}
	for {
		n, err := e.poll(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			return e.wcs[0].Err()
		}
	}
}

// part ends the connections by rdma_cm as the C tools do: the server disconnects, and the client waits for that.
func (e *endpoint) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Timeout)
	defer cancel()
	for _, c := range e.conns {
		var err error
		if e.o.server() {
			err = c.Disconnect(ctx)
		} else {
			select {
			case <-c.Done():
			case <-ctx.Done():
				err = fmt.Errorf("%v has not ended the connection", c.RemoteAddr())
			}
		}
		if err != nil {
			fmt.Fprintf(e.o.Log, "%v\n", err)
			return
		}
	}
}
