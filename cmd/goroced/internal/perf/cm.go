package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// cmMeeting is a reliable connection by rdma_cm that carries the messages as SENDs. The queue pairs of the test are
// connected at the same port afterwards; see connectCM.
type cmMeeting struct {
	device.Owned
	binaryAddresses
	ctx       context.Context // ends all waits
	o         *Options
	own       netip.Addr // local address to use; zero for any
	cm        *rdmacm.CM
	listener  *rdmacm.Listener // server: listener for connections, this one and those of the test
	datagrams *rdmacm.Listener // server: listener for the test's UD queue pairs
	conn      *rdmacm.Conn

	pd      ib.PD
	cq      ib.CQ
	mr      ib.MR
	buf     []byte  // slots of cmSlotLen, one for each receive
	arrived []ib.WC // completed receives that have not been read, at most one for each slot
	unacked int     // outstanding SENDs
	err     error   // why the connection cannot be used any more
}

// A receive has room for the longest message. The peer is at most one message ahead.
const (
	cmSlotLen  = 64
	cmSlots    = 2
	cmSendRoom = 4

	cmSendID = cmSlots // after the IDs of receives, which are slots
)

// farewell limits the wait for the peer at the end of a meeting.
const farewell = time.Second

// meetCM connects to the server, or waits for the client.
func meetCM(ctx context.Context, dev ib.Device, o *Options) (*cmMeeting, error) {
	m := &cmMeeting{ctx: ctx, o: o, buf: make([]byte, cmSlots*cmSlotLen)}
	err := m.open(dev)
	if err == nil {
		err = m.connect()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// open creates the objects that the connection needs.
func (m *cmMeeting) open(dev ib.Device) (err error) {
	if m.o.GIDIndex >= 0 {
		table, err := dev.GIDs(1)
		if err != nil {
			return err
		}
		gid, err := localGID(table, m.o.GIDIndex, netip.Addr{})
		if err != nil {
			return err
		}
		m.own = gid.GID.Addr()
	}
	if m.cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		return err
	}
	m.Own(m.cm)
	if m.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	m.Own(m.pd)
	if m.mr, err = m.pd.RegMR(ib.MRInit{Buf: m.buf, Access: ib.LocalWrite}); err != nil {
		return err
	}
	m.Own(m.mr)
	if m.cq, err = dev.CreateCQ(ib.CQInit{Entries: cmSlots + cmSendRoom}); err != nil {
		return err
	}
	m.Own(m.cq)
	return nil
}

func (m *cmMeeting) connect() (err error) {
	config := rdmacm.Config{
		PD: m.pd, SendCQ: m.cq, Cap: ib.QPCap{MaxSendWR: cmSendRoom, MaxRecvWR: cmSlots, MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInline: cmSlotLen},
		ResponderResources: -1, InitiatorDepth: -1, RetryCount: orNone(m.o.RetryCount), AckTimeout: m.o.AckTimeout,
		Local: m.source(), Prepare: m.prepare,
	}
	if m.o.server() {
		m.conn, err = m.accept(config)
	} else {
		config.PathMTU = ib.MTU256 // supported by all ports, and no message is longer
		m.conn, err = m.dial(config)
	}
	if err != nil {
		return err
	}
	m.Own(m.conn)
	return nil
}

// prepare posts the receives before the peer can send.
func (m *cmMeeting) prepare(c *rdmacm.Conn) error {
	for slot := range cmSlots {
		if err := m.postRecv(c.QP(), slot); err != nil {
			return err
		}
	}
	return nil
}

func (m *cmMeeting) postRecv(qp ib.QP, slot int) error {
	_, err := qp.PostRecv([]ib.RecvWR{{ID: uint64(slot),
		SGL: []ib.SGE{m.mr.SGE(slot*cmSlotLen, cmSlotLen)}}})
	return err
}

// source returns the source address of connections.
func (m *cmMeeting) source() netip.AddrPort {
	if !m.own.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(m.own, 0)
}

// orNone converts a count for rdmacm.Config, where 0 stands for the default.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

func (m *cmMeeting) dial(config rdmacm.Config) (*rdmacm.Conn, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.o.Timeout)
	defer cancel()
	conn, err := m.cm.Dial(ctx, m.server(), config)
	switch {
	case notListening(err):
		return nil, fmt.Errorf("connect to the server: %w; start it there first: %s", err, m.o.command(""))
	case err != nil:
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return conn, nil
}

func (m *cmMeeting) server() string { return net.JoinHostPort(m.o.Host, strconv.Itoa(m.o.Port)) }

// notListening reports whether the error means that nobody listens at the port.
func notListening(err error) bool {
	return errors.Is(err, &rdmacm.RejectError{Reason: ib.RejectInvalidServiceID}) ||
		errors.Is(err, &rdmacm.RejectError{Status: ib.SIDRUnsupported})
}

// accept waits for one client.
func (m *cmMeeting) accept(config rdmacm.Config) (*rdmacm.Conn, error) {
	if err := m.listen(); err != nil {
		return nil, fmt.Errorf("wait for a client: %w; end the other server or choose a port with -p", err)
	}
	m.o.announce()
	r, err := m.listener.Request(m.ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.o.Timeout)
	defer cancel()
	return r.Accept(ctx, config)
}

func (m *cmMeeting) listen() (err error) {
	own := ""
	if m.own.IsValid() {
		own = m.own.String()
	}
	addr := net.JoinHostPort(own, strconv.Itoa(m.o.Port))
	if m.listener, err = m.cm.Listen(m.ctx, addr, rdmacm.ListenConfig{}); err != nil {
		return err
	}
	m.Own(m.listener)
	if !m.o.datagrams() {
		return nil
	}
	if m.datagrams, err = m.cm.Listen(m.ctx, addr,
		rdmacm.ListenConfig{Config: rdmacm.Config{Service: ib.UD}}); err != nil {
		return err
	}
	m.Own(m.datagrams)
	return nil
}

func (m *cmMeeting) swap(mine, theirs []byte, limit time.Duration) error {
	ctx, cancel := m.ctx, context.CancelFunc(func() {})
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	if !m.o.server() {
		if err := m.send(mine); err != nil {
			return err
		}
		return m.receive(ctx, theirs)
	}
	if err := m.receive(ctx, theirs); err != nil {
		return err
	}
	return m.send(mine)
}

func (m *cmMeeting) send(msg []byte) error {
	_, err := m.conn.QP().PostSend([]ib.SendWR{{ID: cmSendID, Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline,
		Inline: msg}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrExchange, err)
	}
	m.unacked++
	return nil
}

func (m *cmMeeting) receive(ctx context.Context, msg []byte) error {
	if err := m.await(ctx, func() bool { return len(m.arrived) > 0 }); err != nil {
		return err
	}
	wc := m.arrived[0]
	m.arrived = slices.Delete(m.arrived, 0, 1)
	if int(wc.ByteLen) != len(msg) {
		return fmt.Errorf("%w: a message of %d bytes came from %v, not of %d", ErrExchange, wc.ByteLen,
			m.conn.RemoteAddr(), len(msg))
	}
	copy(msg, m.buf[wc.ID*cmSlotLen:])
	return m.postRecv(m.conn.QP(), int(wc.ID))
}

// await waits until wanted returns true.
func (m *cmMeeting) await(ctx context.Context, wanted func() bool) error {
	for !wanted() {
		if m.err != nil {
			return m.err
		}
		var wcs [cmSlots + cmSendRoom]ib.WC
		n, err := m.cq.Wait(ctx, wcs[:])
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w: nothing came from %v: %w", ErrExchange, m.conn.RemoteAddr(), err)
		}
		m.take(wcs[:n], err)
	}
	return nil
}

// poll takes the completions that are there.
func (m *cmMeeting) poll() {
	var wcs [cmSlots + cmSendRoom]ib.WC
	n, err := m.cq.Poll(wcs[:])
	m.take(wcs[:n], err)
}

// take handles completions. err is the error of polling, if there was one.
func (m *cmMeeting) take(wcs []ib.WC, err error) {
	for _, wc := range wcs {
		if err == nil {
			err = wc.Err()
		}
		switch {
		case err != nil:
		case wc.ID == cmSendID:
			m.unacked--
		default:
			m.arrived = append(m.arrived, wc)
		}
	}
	if err != nil && m.err == nil {
		if ended := m.conn.Err(); ended != nil { // the cause of flushed requests
			err = ended
		}
		m.err = fmt.Errorf("%w: the connection to %v ended: %w", ErrExchange, m.conn.RemoteAddr(), err)
	}
}

func (m *cmMeeting) peer() presence {
	if len(m.arrived) == 0 && m.err == nil {
		m.poll()
	}
	switch {
	case len(m.arrived) > 0:
		return ahead
	case m.err != nil:
		return gone
	}
	return here
}

// leave does nothing: the end of the test's connections is the message that peers wait for.
func (m *cmMeeting) leave(time.Duration) {}

func (m *cmMeeting) localAddr() netip.Addr { return m.conn.LocalAddr().Addr() }

// Close ends the connection, after the peer has got the last message.
func (m *cmMeeting) Close() error {
	if m.conn != nil {
		ctx, cancel := context.WithTimeout(m.ctx, farewell)
		_ = m.await(ctx, func() bool { return m.unacked == 0 })
		_ = m.conn.Disconnect(ctx) // fails if the peer has left
		cancel()
	}
	return m.Owned.Close()
}
