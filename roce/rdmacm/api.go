package rdmacm

import (
	"context"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/cm"
	"github.com/goroce/goroce/wire"
)

// CM is the connection manager of a device's port. It is safe for concurrent use.
type CM struct{}

// Options adjust a CM.
type Options struct {
	// OnEvent is told of all events of all connections, in their order, before
	// anybody else. It must not block, nor call the CM.
	OnEvent func(cm.Event)
}

// Open takes the port's general services QP; a device has one.
func Open(dev ib.Device, o Options) (*CM, error) { panic("todo") }

// Device returns the device.
func (c *CM) Device() ib.Device { panic("todo") }

// Stats returns the counters of the state machine.
func (c *CM) Stats() cm.Stats { panic("todo") }

// Close ends all connections and listeners, and gives the QP back. The device
// stays open.
func (c *CM) Close() error { panic("todo") }

// Config says what an end of a connection is like. The zero value is good for
// trying things: a QP with small queues and a CQ for each.
type Config struct {
	Service   ib.QPType      // RC, which 0 stands for, UC; UD for Listen and Resolve
	Space     wire.PortSpace // 0 stands for PortSpaceTCP, with UD for PortSpaceUDP
	ServiceID uint64         // if not 0, the service ID itself, whatever the port
	Local     netip.AddrPort // Dial, Resolve: source address and port; zero fields are chosen

	// QP is one of the caller's own, in RESET; it stays the caller's. Otherwise
	// one is made, and closed with the Conn, out of what follows.
	QP     ib.QP
	PD     ib.PD // nil makes one
	SendCQ ib.CQ // nil makes one, without a channel
	RecvCQ ib.CQ // nil takes SendCQ
	SRQ    ib.SRQ
	Cap    ib.QPCap // zero takes 16 work requests of 1 SGE each way
	SigAll bool
	Access ib.Access // what the peer may do; LocalWrite makes no difference

	// Prepare is called when the QP is in INIT, before the peer can send.
	Prepare func(*Conn) error

	PrivateData []byte // at most 56 bytes in Dial, 180 in Resolve, 196 in Accept, 136 in AcceptDatagram

	// For counts, 0 takes the default and a negative number stands for none.
	ResponderResources int    // READs and atomics that the peer may have under way (default 16)
	InitiatorDepth     int    // that we may (default 16); the peer may grant fewer
	RetryCount         int    // 1 to 7 (default 7)
	RNRRetry           int    // 1 to 7 (default 7: for ever)
	AckTimeout         int    // 5-bit code: local ACK timeout of both ends (default 16: 268 ms)
	MinRNRTimer        int    // 5-bit code (default 12: 640 us)
	PathMTU            ib.MTU // Dial: 0 takes the port's
}

// Dial connects to host:port. An address resolves as the net package does it. ctx
// bounds all of it; an error that matches ctx's says which step got no answer.
//
// A refusal is a *RejectError, silence a *TimeoutError.
func (c *CM) Dial(ctx context.Context, addr string, o Config) (*Conn, error) { panic("todo") }

// Resolve asks for the datagram service at host:port.
func (c *CM) Resolve(ctx context.Context, addr string, o Config) (*Service, error) { panic("todo") }

// Service is a datagram service of a peer: where to send.
type Service struct {
	AH          ib.AHAttr
	QPN         ib.QPN
	QKey        uint32
	PrivateData []byte // all bytes of the field
}

// Listen takes requests for host:port; an empty or unspecified host stands for all
// addresses of the device, port 0 for one that is free.
func (c *CM) Listen(ctx context.Context, addr string, o ListenConfig) (*Listener, error) {
	panic("todo")
}

// ListenConfig says what a listener is like.
type ListenConfig struct {
	Config      // of what Accept accepts; Service UD makes a datagram service
	Backlog int // requests that wait for Request or Accept (default 128); more are rejected
}

// Listener takes requests.
type Listener struct{}

func (l *Listener) Addr() netip.AddrPort                          { panic("todo") }
func (l *Listener) Request(ctx context.Context) (*Request, error) { panic("todo") }
func (l *Listener) Accept(ctx context.Context) (*Conn, error)     { panic("todo") }
func (l *Listener) Close() error                                  { panic("todo") }

// Request is a peer's wish to connect, or for a datagram service.
type Request struct{}

func (r *Request) LocalAddr() netip.AddrPort  { panic("todo") }
func (r *Request) RemoteAddr() netip.AddrPort { panic("todo") }
func (r *Request) PrivateData() []byte        { panic("todo") } // all bytes of the field, as Linux gives them
func (r *Request) Params() cm.ConnParams      { panic("todo") }

// Accept answers, and waits until the peer is ready.
func (r *Request) Accept(ctx context.Context, o Config) (*Conn, error) { panic("todo") }

// AcceptDatagram answers with the UD QP, and where to answer the peer.
func (r *Request) AcceptDatagram(qp ib.QPN, qkey uint32, private []byte) (ib.AHAttr, error) {
	panic("todo")
}

// Reject refuses, as a consumer (reason 28).
func (r *Request) Reject(private []byte) error { panic("todo") }

// Delay tells the peer that the answer will take up to d.
func (r *Request) Delay(d time.Duration) error { panic("todo") }

// Conn is a connected queue pair.
type Conn struct{}

func (c *Conn) QP() ib.QP                  { panic("todo") }
func (c *Conn) PD() ib.PD                  { panic("todo") } // nil with a QP of the caller's
func (c *Conn) SendCQ() ib.CQ              { panic("todo") }
func (c *Conn) RecvCQ() ib.CQ              { panic("todo") }
func (c *Conn) LocalAddr() netip.AddrPort  { panic("todo") }
func (c *Conn) RemoteAddr() netip.AddrPort { panic("todo") }
func (c *Conn) PrivateData() []byte        { panic("todo") } // the peer's: all bytes of the field
func (c *Conn) Params() cm.ConnParams      { panic("todo") } // as agreed
func (c *Conn) DataArrived()               { panic("todo") } // see cm.Manager.DataArrived

// Done is closed when the connection has ended, whoever ended it. The QP is in ERR
// then, and its work is flushed. Err says why: ErrDisconnected for the peer's
// wish, ib.ErrClosed for ours.
func (c *Conn) Done() <-chan struct{} { panic("todo") }
func (c *Conn) Err() error            { panic("todo") }

// Disconnect ends the connection and waits until the peer knows, or ctx ends.
func (c *Conn) Disconnect(ctx context.Context) error { panic("todo") }

// Close disconnects without waiting, and closes what was made for the Conn.
func (c *Conn) Close() error { panic("todo") }

// Join makes a UD QP a member of a multicast group and returns where to send.
func (c *CM) Join(ctx context.Context, group netip.Addr, qp ib.QP) (*Membership, error) {
	panic("todo")
}

// Membership is that of a QP in a multicast group.
type Membership struct {
	AH   ib.AHAttr
	QPN  ib.QPN // ib.QPNMulticast
	QKey uint32 // 0x01234567, as rdma_cm has it
}

func (m *Membership) Leave() error { panic("todo") }
