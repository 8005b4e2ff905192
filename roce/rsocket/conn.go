package rsocket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Network is the name of the network, in Addr and in errors.
const Network = "rsocket"

// Addr is the address of one end: IP address and rdma_cm port.
type Addr struct{ netip.AddrPort }

// Network returns "rsocket".
func (Addr) Network() string { return Network }

// transport is the connected QP, an *rdmacm.Conn outside of tests.
type transport interface {
	Done() <-chan struct{} // closed when the connection has ended; the QP is in ERR
	Err() error            // the cause of the end
	Close() error          // disconnects and destroys the QP; does not wait
}

// Conn is a stream connection. It is a net.Conn, and safe for concurrent use.
//
// Errors are *net.OpError, except for io.EOF. They match net.ErrClosed after
// Close, os.ErrDeadlineExceeded after a deadline, syscall.EPIPE for Write after
// CloseWrite, and syscall.ECONNRESET when the connection broke or the peer has
// closed it; the latter also match the cause: a *ProtocolError, an *ib.WCError,
// ib.ErrClosed of the device.
type Conn struct {
	ep     *endpoint
	qp     ib.QP
	tr     transport
	local  Addr
	remote Addr

	stop     context.CancelFunc // makes run return
	stopped  context.Context
	released chan struct{}

	// At most one Read and one Write run at a time. Both locks are taken before mu.
	readMu  sync.Mutex
	writeMu sync.Mutex

	mu       sync.Mutex
	readable *sync.Cond // signaled when Read may be able to go on
	writable *sync.Cond // signaled when Write, or another sender, may be able to go on

	in       inbound
	out      outbound
	maps     mappings
	wcs      [64]ib.WC
	wr       [1]ib.SendWR      // the request of post
	sgl      [2]ib.SGE         // the SGL of stage; guarded by writeMu
	control  [mapEntryLen]byte // the payload of control requests
	reading  int               // unread bytes that a Read is copying without holding mu
	err      error             // why the connection broke
	activity bool              // something completed since the last keepalive

	closed         bool // Close has been called
	freed          bool // the endpoint is closed, or about to be
	readClosed     bool // CloseRead has been called
	writeClosed    bool
	eof            bool // the peer has said that it sends no more
	peerClosed     bool // the peer has said that it does not receive either
	pending        []uint32
	disconnectSent bool // the disconnect message has been sent

	readDeadline  deadline
	writeDeadline deadline
	timers        []*time.Timer // keepalive, linger
}

// newConn starts a connection on a QP in RTS whose receives are posted. It takes ownership of ep and tr.
func newConn(ep *endpoint, qp ib.QP, tr transport, peer record, local, remote netip.AddrPort) *Conn {
	c := &Conn{
		ep: ep, qp: qp, tr: tr, local: Addr{local}, remote: Addr{remote}, released: make(chan struct{}),
		in:   newInbound(len(ep.data), ep.o.ReceiveQueue),
		out:  newOutbound(len(ep.send), ep.o.SendQueue, ep.table[:sglEntries*sgeLen/8], &peer),
		maps: newMappings(ep.table[sglEntries*sgeLen/8:], &peer),
	}
	c.readable, c.writable = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.stopped, c.stop = context.WithCancel(context.Background())
	if ep.o.KeepAlive > 0 {
		c.keepAlive()
	}
	go c.run()
	go c.watch()
	return c
}

// LocalAddr returns this end's Addr.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// PathMTU returns the path MTU of the connection; 0 if it is not known.
func (c *Conn) PathMTU() ib.MTU {
	if t, ok := c.tr.(*rdmacm.Conn); ok {
		return t.QPAttr().PathMTU
	}
	return 0
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadline(func() {
		c.readDeadline.set(t, &c.mu, c.readable)
		c.writeDeadline.set(t, &c.mu, c.writable)
	})
}

// SetReadDeadline sets the time after which Read fails; zero means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(func() { c.readDeadline.set(t, &c.mu, c.readable) })
}

// SetWriteDeadline sets the time after which Write, WriteAt, Map and Unmap fail; zero means never. Bytes that Write has
// reported as written are sent nevertheless.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(func() { c.writeDeadline.set(t, &c.mu, c.writable) })
}

func (c *Conn) setDeadline(set func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	set()
	return nil
}

// opError adds the operation and the addresses to err.
func (c *Conn) opError(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}
