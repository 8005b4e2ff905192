package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// ErrDisconnected is the error of a connection that the peer has ended (Conn.Err).
var ErrDisconnected = errors.New("disconnected by the peer")

// RejectError says that the peer has refused. errors.Is(err, &RejectError{Reason: r}) compares the reason only, and
// with a Status only the status.
type RejectError struct {
	Op     string // "dial", "resolve", "accept"
	Addr   string
	Reason ib.RejectReason // of connections
	Status ib.SIDRStatus   // of datagram services, which have no Reason
	Info   []byte          // additional reject information
	// PrivateData is the peer's private data: the whole field of the message, as with librdmacm.
	PrivateData []byte
}

func (e *RejectError) Error() string {
	if e.Reason == 0 {
		return fmt.Sprintf("%s %s: rejected with status %d, %v%s", e.Op, e.Addr, uint8(e.Status), e.Status,
			statusAdvice[e.Status])
	}
	return fmt.Sprintf("%s %s: rejected for reason %d, %v%s", e.Op, e.Addr, uint16(e.Reason), e.Reason,
		rejectAdvice[e.Reason])
}

// Is reports whether target is a RejectError with the same reason or status.
func (e *RejectError) Is(target error) bool {
	t, ok := target.(*RejectError)
	return ok && t.Reason == e.Reason && t.Status == e.Status
}

// rejectAdvice says what a reason means for the caller, and what to do.
var rejectAdvice = map[ib.RejectReason]string{
	ib.RejectNoResources: ": the peer's backlog is full, or it has no more QPs; try again later",
	ib.RejectTimeout:     ": the peer waited in vain for our answer; its messages reach us, ours get lost",
	ib.RejectInvalidServiceID: ": nobody listens there; check the port, and that the listener has this " +
		"address and service",
	ib.RejectInvalidTransport:   ": the listener wants another service; choose Config.Service as there",
	ib.RejectStale:              ": the peer takes us for an older connection; try again",
	ib.RejectInvalidGID:         ": the peer does not have the address that the request names; is there a NAT?",
	ib.RejectInvalidMTU:         ": the peer's port takes only smaller packets; set Config.PathMTU (--mtu)",
	ib.RejectConsumer:           ": the application there refused; its private data may say why",
	ib.RejectInvalidCommID:      ": the peer knows nothing of this connection any more",
	ib.RejectResponderResources: ": set Config.ResponderResources higher",
}

var statusAdvice = map[ib.SIDRStatus]string{
	ib.SIDRUnsupported: ": no datagram service listens there; check the port",
	ib.SIDRReject:      ": the application there refused; its private data may say why",
	ib.SIDRNoQP:        ": the peer's backlog is full, or it has no QP; try again later",
}

// TimeoutError says that the peer did not answer.
type TimeoutError struct {
	Op   string // "dial", "resolve", "accept", "disconnect"
	Addr string
	Step string // the message without an answer: "REQ", "REP", "SIDR_REQ", "DREQ"
	Sent int    // how often it was sent, if known
	Err  error  // the context's error, if that ended the wait
}

func (e *TimeoutError) Error() string {
	if errors.Is(e.Err, context.Canceled) {
		return fmt.Sprintf("%s %s: cancelled before the answer to %s: %v", e.Op, e.Addr, e.Step, e.Err)
	}
	s := fmt.Sprintf("%s %s: no answer to %s", e.Op, e.Addr, e.Step)
	if e.Sent > 0 {
		s += fmt.Sprintf(", sent %d times", e.Sent)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s + stepAdvice[e.Step]
}

// Unwrap returns the context's error.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Timeout reports whether time ran out, as in net.Error; it is false if the context was cancelled.
func (e *TimeoutError) Timeout() bool { return !errors.Is(e.Err, context.Canceled) }

// stepAdvice says what to check if a message got no answer.
var stepAdvice = map[string]string{
	"REQ":      unreachableAdvice,
	"SIDR_REQ": unreachableAdvice,
	"REP":      "; the peer asked and then fell silent: it gave up, or our messages do not reach it",
}

const unreachableAdvice = "; is the host up, does every firewall pass UDP port 4791 both ways, " +
	"does anybody there speak RoCEv2 (goroce, rdma_rxe, a RoCE NIC)?"

// UnreachableError says that the network cannot reach the peer: a router, the peer's host or this one has said so. It
// wraps the error number.
type UnreachableError struct {
	Op   string // "dial", "resolve"
	Addr netip.AddrPort
	Err  syscall.Errno // ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EACCES
}

func (e *UnreachableError) Error() string {
	host := e.Addr.Addr()
	what := fmt.Sprintf("the network does not pass packets to %v: %v", host, e.Err)
	switch e.Err {
	case syscall.ECONNREFUSED:
		what = fmt.Sprintf("UDP port 4791 of %v is closed: nobody there speaks RoCEv2 at this address; start the "+
			"server there (goroce), or `rdma link add rxe0 type rxe netdev IF` (rdma_rxe)", host)
	case syscall.EHOSTUNREACH:
		what = fmt.Sprintf("%v cannot be reached: it does not answer ARP or neighbour discovery, or a router or "+
			"firewall says no; is the address right and the host up?", host)
	case syscall.ENETUNREACH:
		what = fmt.Sprintf("there is no route to %v; `ip route get %[1]v` asks the kernel", host)
	}
	return fmt.Sprintf("%s %v: %s", e.Op, e.Addr, what)
}

// Unwrap returns the error number.
func (e *UnreachableError) Unwrap() error { return e.Err }

// unreachable returns the error for a CMUnreachable event in which the network has spoken; nil for others.
func unreachable(op string, addr netip.AddrPort, ev *ib.CMEvent) error {
	if errno := ev.Errno(); errno != 0 && errno != syscall.ETIMEDOUT {
		return &UnreachableError{op, addr, errno}
	}
	return nil
}

// opError adds the operation and the address to err, unless err names them itself.
func opError(op, addr string, err error) error {
	switch err.(type) {
	case *RejectError, *TimeoutError, *UnreachableError:
		return err
	}
	return fmt.Errorf("%s %s: %w", op, addr, err)
}

// refuse returns the error for an argument that is not valid.
func refuse(op, attr string, value any, allowed string) error {
	return driver.Refuse(op, attr, value, allowed, ib.ErrInvalid)
}
