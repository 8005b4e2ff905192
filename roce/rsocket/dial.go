package rsocket

import (
	"context"
	"net"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Dial connects to host:port. ctx bounds the connecting, not the connection.
//
// Errors are *net.OpError around those of [rdmacm.CM.Dial], or around a
// *ProtocolError if what answered is no rsocket.
func Dial(ctx context.Context, cm *rdmacm.CM, addr string, o Options) (*Conn, error) {
	c, err := dial(ctx, cm, addr, o)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: Network, Err: err}
	}
	return c, nil
}

func dial(ctx context.Context, cm *rdmacm.CM, addr string, o Options) (*Conn, error) {
	ep, err := newEndpoint(cm.Device(), o)
	if err != nil {
		return nil, err
	}
	cfg := ep.config()
	cfg.Local = o.Local
	cfg.Prepare = func(rc *rdmacm.Conn) error { return ep.postReceives(rc.QP()) }
	rc, err := cm.Dial(ctx, addr, cfg)
	if err != nil {
		ep.close()
		return nil, err
	}
	peer, err := parseRecord(rc.PrivateData())
	if err != nil {
		_ = rc.Close()
		ep.close()
		return nil, err
	}
	return newConn(ep, rc.QP(), rc, peer, rc.LocalAddr(), rc.RemoteAddr()), nil
}

// config is the connection that the endpoint wants below: no READs, RNR NAKs for
// ever.
func (ep *endpoint) config() rdmacm.Config {
	r := ep.record()
	return rdmacm.Config{
		Service: ib.RC, PD: ep.pd, SendCQ: ep.cq, Cap: ep.cap(), SigAll: true, Access: ib.RemoteWrite,
		PrivateData: r.append(nil), ResponderResources: -1, InitiatorDepth: -1, AckTimeout: ep.o.AckTimeout,
	}
}

// Dialer dials with a CM and Options. Its method is of the shape that
// http.Transport.DialContext and others want.
type Dialer struct {
	CM      *rdmacm.CM
	Options Options
}

// DialContext is Dial. The network, "tcp" or whatever a caller says, plays no part.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := Dial(ctx, d.CM, addr, d.Options)
	if err != nil {
		return nil, err // not a nil *Conn in an interface
	}
	return c, nil
}

var (
	_ net.Conn     = (*Conn)(nil)
	_ net.Listener = (*Listener)(nil)
	_ net.Addr     = Addr{netip.AddrPort{}}
)
