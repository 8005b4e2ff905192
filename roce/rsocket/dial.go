package rsocket

import (
	"context"
	"net"
	"net/netip"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Dial connects to host:port. ctx limits the time to connect; the connection does not depend on it.
//
// Errors are *net.OpError. They wrap the errors of [rdmacm.CM.Dial], or a *ProtocolError if the peer is no rsocket.
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

// config returns the configuration of the QP: no READs, and any number of RNR NAKs.
func (ep *endpoint) config() rdmacm.Config {
	r := ep.record()
	return rdmacm.Config{
		Service: ib.RC, PD: ep.pd, SendCQ: ep.cq, Cap: ep.cap(), SigAll: true, Access: ib.RemoteWrite,
		PrivateData: r.append(nil), ResponderResources: -1, InitiatorDepth: -1, AckTimeout: ep.o.AckTimeout,
		PathMTU: ep.o.PathMTU,
	}
}

// Dialer dials with a CM and Options. Its method fits http.Transport.DialContext and similar fields.
type Dialer struct {
	CM      *rdmacm.CM
	Options Options
}

// DialContext is like Dial. It ignores network.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := Dial(ctx, d.CM, addr, d.Options)
	if err != nil {
		return nil, err // otherwise the interface would hold a nil *Conn
	}
	return c, nil
}

var (
	_ net.Conn     = (*Conn)(nil)
	_ net.Listener = (*Listener)(nil)
	_ net.Addr     = Addr{netip.AddrPort{}}
)
