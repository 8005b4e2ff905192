package abi

import (
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Requests to the connection manager correspond to the methods of ib.CM and ib.CMID, where they
// are documented. The reply that creates an event channel carries a socket. While events wait there
// is one message, CMSignal, on it, so the socket can be polled; OpCMEvent then takes an event. A
// reply whose Signals is 1 says that no event waits any more: the client takes the message off the
// socket. (A client that takes each message off on its own may ignore Signals: the next event brings
// another message.) The channel and its IDs end when the client's last descriptor of the socket is closed,
// or the channel's handle, which closes those of its IDs and of their memberships, too.

// CMAllDevices is a flag of OpenCM: IDs of the channel may be on all devices of the daemon, as their addresses say, not
// only on the one of the connection.
const CMAllDevices = 1

// OpenCM is the body of OpOpenCM. Without it all fields are 0.
type OpenCM struct{ Flags uint32 }

// CMScope may stand behind the body of a request about an ID, and of OpClose: the handle must then be one of an ID, or
// of a membership, on this channel. The kernel's rdma_ucm checks the same.
type CMScope struct {
	Channel    Handle
	Membership uint32 // 1: the handle is that of a membership
}

// CMSignal is a message on the socket of an event channel. It carries no data.
type CMSignal struct{ _ uint32 }

// CMAddr is an IP address with a port. Family is 4 or 6, or 0 for none; an IPv4 address
// stands in the last 4 bytes of IP. Scope is that of an IPv6 link-local address: the index of the network interface, or
// 0 for none.
type CMAddr struct {
	IP     [16]byte
	Port   uint16
	Family uint16
	Scope  uint32
}

// CMAddrOf converts a to its form in messages.
func CMAddrOf(a netip.AddrPort) (out CMAddr) {
	out.Port = a.Port()
	switch ip := driver.PlainAddr(a.Addr()); {
	case ip.Is4():
		b := ip.As4()
		copy(out.IP[12:], b[:])
		out.Family = 4
	case ip.Is6():
		out.IP, out.Family, out.Scope = ip.As16(), 6, scopeOf(a.Addr())
	}
	return out
}

// scopeOf returns the index of the network interface that is the zone of a link-local address; 0 if it has none.
func scopeOf(a netip.Addr) uint32 {
	if a.Zone() == "" || !a.IsLinkLocalUnicast() {
		return 0
	}
	if n, err := strconv.ParseUint(a.Zone(), 10, 31); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(a.Zone()); err == nil {
		return uint32(i.Index)
	}
	return 0
}

// zoneOf is the inverse of scopeOf. The zone of an interface that does not exist is its index.
func zoneOf(a netip.Addr, scope uint32) netip.Addr {
	if scope == 0 || !a.IsLinkLocalUnicast() {
		return a
	}
	if i, err := net.InterfaceByIndex(int(min(scope, math.MaxInt32))); err == nil {
		return a.WithZone(i.Name)
	}
	return a.WithZone(strconv.FormatUint(uint64(scope), 10))
}

// AddrPort is the inverse of CMAddrOf. An unknown family gives an invalid address.
func (a *CMAddr) AddrPort() netip.AddrPort {
	switch a.Family {
	case 4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.IP[12:])), a.Port)
	case 6:
		return netip.AddrPortFrom(zoneOf(netip.AddrFrom16(a.IP), a.Scope), a.Port)
	}
	return netip.AddrPortFrom(netip.Addr{}, a.Port)
}

// CreateCMID is the body of OpCreateCMID: ib.CMIDInit.
type CreateCMID struct {
	Channel     Handle
	Space, Type uint32
	_           uint32
	ServiceID   uint64
	Cookie      uint64 // of the ID's events; 0 for none
}

// CMBind is the body of OpCMBind, and of OpCMJoin and OpCMLeave, where Addr is that of the
// multicast group.
type CMBind struct {
	ID     Handle
	_      uint32
	Addr   CMAddr
	Cookie uint64 // OpCMJoin: of the membership's events
}

// CMListen is the body of OpCMListen.
type CMListen struct {
	ID      Handle
	Backlog uint32
}

// CMResolve is the body of OpCMResolveAddr and, without addresses, of OpCMResolveRoute.
type CMResolve struct {
	ID            Handle
	_             uint32
	TimeoutNS     int64
	Local, Remote CMAddr
}

// CMParam is ib.CMConnParam without the private data.
type CMParam struct {
	QPN, QKey                          uint32
	SRQ                                uint8
	ResponderResources, InitiatorDepth uint8
	RetryCount, RNRRetry               uint8
	PrivateLen                         uint8 // bytes of private data
	InfoLen                            uint8 // of rejections: bytes of additional reject information
	_                                  uint8
}

// CMPrivate is room for the private data of any message.
type CMPrivate [200]byte

// CMConnect is the body of OpCMConnect and OpCMAccept.
type CMConnect struct {
	ID        Handle
	_         uint32
	TimeoutNS int64  // of OpCMConnect
	Cookie    uint64 // of OpCMAccept: the cookie of the ID from now on; 0 leaves it
	Param     CMParam
	Private   CMPrivate
}

// CMReject is the body of OpCMReject.
type CMReject struct {
	ID                  Handle
	Reason              uint16
	InfoLen, PrivateLen uint8
	Info                [72]byte
	Private             CMPrivate
}

// CMValue is the body of OpCMNotify (an event type), OpCMInitQPAttr (a state) and
// OpCMSetOption (an option and its value), and of OpCMMigrate, where Value is the channel.
type CMValue struct {
	ID    Handle
	Which uint32
	Value int64
}

// CMDelay is the body of OpCMDelay.
type CMDelay struct {
	ID Handle
	_  uint32
	NS int64
}

// CMIDAttr is the reply to OpCMQuery.
type CMIDAttr struct {
	Space, Type   uint32
	ServiceID     uint64
	Local, Remote CMAddr
	PathMTU       uint32
	AH            AH
	Device        uint32 // 1 more than the index of the device on which the ID is; 0 for that of the connection
}

// CMNoEvent is the Type of a CMEvent if the channel has no event.
const CMNoEvent = 1<<32 - 1

// CMEvent is the reply to OpCMEvent: ib.CMEvent. The ID of a CMConnectRequest is a new
// object, which the client must close.
type CMEvent struct {
	Type         uint32
	ID, Listener Handle // with CMMulticastJoin and CMMulticastError Listener is the membership
	Status       int32
	Tries        uint32
	Service      uint32 // ib.QPType of the ID
	Left         uint32 // events that still wait
	Signals      uint32 // messages that the client must take off the channel's socket
	Cookie       uint64 // of the ID, the listener or the membership
	Param        CMParam
	Group        CMAddr
	AH           AH
	Info         [72]byte
	Private      CMPrivate
}

// cut returns the first n bytes of b, at most all.
func cut(b []byte, n uint8) []byte { return b[:min(int(n), len(b))] }

// paramOf converts p to its form in messages, with its private data. Data too long for any
// message is cut to a length that the device refuses.
func paramOf(p *ib.CMConnParam) (out CMParam, private CMPrivate) {
	out = CMParam{QPN: uint32(p.QPN), QKey: p.QKey, SRQ: uint8(flag(p.SRQ)), ResponderResources: p.ResponderResources,
		InitiatorDepth: p.InitiatorDepth, RetryCount: p.RetryCount, RNRRetry: p.RNRRetry}
	out.PrivateLen = uint8(copy(private[:], p.PrivateData))
	return out, private
}

func (p *CMParam) param(private []byte) ib.CMConnParam {
	return ib.CMConnParam{QPN: ib.QPN(p.QPN), QKey: p.QKey, SRQ: p.SRQ != 0, ResponderResources: p.ResponderResources,
		InitiatorDepth: p.InitiatorDepth, RetryCount: p.RetryCount, RNRRetry: p.RNRRetry,
		PrivateData: cut(private, p.PrivateLen)}
}

// CMConnectOf returns the body of OpCMConnect or OpCMAccept with parameters p.
func CMConnectOf(id Handle, p *ib.CMConnParam) CMConnect {
	c := CMConnect{ID: id, TimeoutNS: int64(p.Timeout)}
	c.Param, c.Private = paramOf(p)
	return c
}

// Conn is the inverse of CMConnectOf. The private data of the result aliases c.
func (c *CMConnect) Conn() ib.CMConnParam {
	p := c.Param.param(c.Private[:])
	p.Timeout = time.Duration(c.TimeoutNS)
	return p
}

// CMRejectOf converts a rejection to its form in messages.
func CMRejectOf(id Handle, r *ib.CMReject) CMReject {
	out := CMReject{ID: id, Reason: uint16(r.Reason)}
	out.InfoLen = uint8(copy(out.Info[:], r.Info))
	out.PrivateLen = uint8(copy(out.Private[:], r.PrivateData))
	return out
}

// Reject is the inverse of CMRejectOf. The slices of the result alias r.
func (r *CMReject) Reject() ib.CMReject {
	return ib.CMReject{Reason: ib.RejectReason(r.Reason), Info: cut(r.Info[:], r.InfoLen),
		PrivateData: cut(r.Private[:], r.PrivateLen)}
}

// CMIDAttrOf converts the attributes of an ID to their form in messages.
func CMIDAttrOf(a *ib.CMIDAttr) CMIDAttr {
	return CMIDAttr{Space: uint32(a.Space), Type: uint32(a.Type), ServiceID: a.ServiceID, Local: CMAddrOf(a.Local),
		Remote: CMAddrOf(a.Remote), PathMTU: uint32(a.PathMTU), AH: AHOf(&a.AH)}
}

// Attr is the inverse of CMIDAttrOf.
func (a *CMIDAttr) Attr() ib.CMIDAttr {
	return ib.CMIDAttr{Space: ib.PortSpace(a.Space), Type: ib.QPType(narrow(a.Type)), ServiceID: a.ServiceID,
		Local: a.Local.known(), Remote: a.Remote.known(), PathMTU: ib.MTU(a.PathMTU), AH: a.AH.Attr()}
}

// known is AddrPort, but returns the zero value, without a port, if there is no address.
func (a *CMAddr) known() netip.AddrPort {
	if p := a.AddrPort(); p.Addr().IsValid() {
		return p
	}
	return netip.AddrPort{}
}

// CMEventOf converts an event to its form in messages, without the handles.
func CMEventOf(e *ib.CMEvent) CMEvent {
	out := CMEvent{Type: uint32(e.Type), Status: int32(e.Status), Tries: uint32(e.Tries), AH: AHOf(&e.AH),
		Group: CMAddrOf(netip.AddrPortFrom(e.Group, 0))}
	out.Param, out.Private = paramOf(&e.Param)
	out.Param.InfoLen = uint8(copy(out.Info[:], e.Info))
	return out
}

// Event is the inverse of CMEventOf, without the IDs. Its slices are copies.
func (e *CMEvent) Event() ib.CMEvent {
	out := ib.CMEvent{Type: ib.CMEventType(narrow(e.Type)), Status: int(e.Status), Tries: int(e.Tries), AH: e.AH.Attr(),
		Group: e.Group.AddrPort().Addr()}
	out.Param = e.Param.param(append([]byte(nil), e.Private[:]...))
	if e.Param.InfoLen > 0 {
		out.Info = append([]byte(nil), cut(e.Info[:], e.Param.InfoLen)...)
	}
	if len(out.Param.PrivateData) == 0 {
		out.Param.PrivateData = nil
	}
	return out
}
