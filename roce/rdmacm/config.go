package rdmacm

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/goroce/ib"
)

// Config configures one end of a connection. The zero value is good for experiments: a QP with small queues, and one
// CQ.
type Config struct {
	Service   ib.QPType      // RC (which 0 stands for) or UC; UD for Listen and Resolve
	Space     ib.PortSpace   // 0 stands for PortSpaceTCP, with UD for PortSpaceUDP
	ServiceID uint64         // if not 0, used instead of the service ID of Space and the port
	Local     netip.AddrPort // Dial, Resolve: source address and port; a zero address or port is chosen

	// QP is a QP of the caller, in RESET, which remains the caller's. If it is nil, a QP is created with the fields
	// below, and closed with the Conn.
	QP     ib.QP
	PD     ib.PD // nil: one is created
	SendCQ ib.CQ // nil: one is created, for ib.CQ.Wait
	RecvCQ ib.CQ // nil: SendCQ
	SRQ    ib.SRQ
	Cap    ib.QPCap // zero: 16 work requests of 1 SGE in each queue
	SigAll bool
	Access ib.Access // what the peer may do; LocalWrite has no effect

	// Prepare is called when the QP is in INIT, before the peer can send. If the connection fails afterwards, its Done
	// is closed.
	Prepare func(*Conn) error

	PrivateData []byte // at most 56 bytes in Dial, 180 in Resolve, 196 in Accept, 136 in AcceptDatagram

	// In the fields below, 0 stands for the default and a negative number for zero.
	ResponderResources int // READs and atomics that the peer may have outstanding (default 16)
	// READs and atomics that this end may have outstanding (default 16); the peer may grant fewer
	InitiatorDepth int
	RetryCount     int    // 1 to 7 (default 7)
	RNRRetry       int    // 1 to 7 (default 7: for ever)
	AckTimeout     int    // 5-bit code of the local ACK timeout of both ends (default 16: 268 ms)
	MinRNRTimer    int    // 5-bit code of the RNR NAK delay (default 12: 640 us)
	PathMTU        ib.MTU // Dial: the largest to ask for; Accept: the largest to accept; 0 is the port's
}

// Defaults of Config.
const (
	defaultRdAtomic    = 16
	defaultRetry       = 7
	defaultAckTimeout  = 16
	defaultMinRNRTimer = 12
	defaultWR          = 16
)

// complete returns o with defaults filled in, or an error about a field. services are those that op supports; the first
// is the default.
func (o Config) complete(dev ib.Device, op string, services ...ib.QPType) (Config, error) {
	if o.Service == 0 {
		o.Service = services[0]
	}
	if !slices.Contains(services, o.Service) {
		return o, refuse(op, "Service", o.Service, fmt.Sprintf("one of %v; Resolve asks for datagram services",
			services))
	}
	if o.Space == 0 && o.Service == ib.UD {
		o.Space = ib.PortSpaceUDP
	} else if o.Space == 0 {
		o.Space = ib.PortSpaceTCP
	}
	if o.QP != nil && o.QP.Type() != o.Service {
		return o, refuse(op, "QP", o.QP.Type(), fmt.Sprintf("a QP of type %v, as Service says", o.Service))
	}
	attr := dev.Attr()
	for _, c := range []struct {
		attr     string
		v        *int
		def, max int
	}{
		{"ResponderResources", &o.ResponderResources, defaultRdAtomic, min(attr.MaxQPRdAtomic, 255)},
		{"InitiatorDepth", &o.InitiatorDepth, defaultRdAtomic, min(attr.MaxQPInitRdAtom, 255)},
		{"RetryCount", &o.RetryCount, defaultRetry, 7},
		{"RNRRetry", &o.RNRRetry, defaultRetry, 7},
		{"AckTimeout", &o.AckTimeout, defaultAckTimeout, 31},
		{"MinRNRTimer", &o.MinRNRTimer, defaultMinRNRTimer, 31},
	} {
		switch {
		case *c.v < 0:
			*c.v = 0
		case *c.v == 0:
			*c.v = min(c.def, c.max)
		case *c.v > c.max:
			return o, refuse(op, c.attr, *c.v, fmt.Sprintf("1 to %d; 0 for the default, negative for none", c.max))
		}
	}
	if o.Service == ib.UC { // UC has no READs and atomics
		o.ResponderResources, o.InitiatorDepth = 0, 0
	}
	return o, o.completeQP(dev, op)
}

// completeQP fills in and checks the fields from which the QP is created.
func (o *Config) completeQP(dev ib.Device, op string) error {
	if o.Cap == (ib.QPCap{}) {
		o.Cap = ib.QPCap{MaxSendWR: defaultWR, MaxRecvWR: defaultWR, MaxSendSGE: 1, MaxRecvSGE: 1}
	}
	port, err := dev.QueryPort(1)
	if err != nil {
		return err
	}
	if o.PathMTU == 0 {
		o.PathMTU = port.ActiveMTU
	}
	if !o.PathMTU.Valid() || o.PathMTU > port.ActiveMTU {
		return refuse(op, "PathMTU", int(o.PathMTU),
			fmt.Sprintf("256, 512, 1024, 2048 or 4096, at most the port's %d; or 0, the port's", port.ActiveMTU))
	}
	return nil
}

// op returns the operation that needs a route: that of a datagram service, or of a connection.
func (o *Config) op() string {
	if o.Service == ib.UD {
		return "resolve"
	}
	return opDial
}

// params returns what this end contributes to a connection.
func (o *Config) params(qp ib.QPN) ib.CMConnParam {
	return ib.CMConnParam{
		QPN: qp, SRQ: o.SRQ != nil,
		ResponderResources: uint8(o.ResponderResources), InitiatorDepth: uint8(o.InitiatorDepth),
		RetryCount: uint8(o.RetryCount), RNRRetry: uint8(o.RNRRetry), PrivateData: o.PrivateData,
	}
}
