package ib

import (
	"fmt"
	"strings"
	"time"
)

// Reason says what was wrong with a request that failed or was refused. Values are stable. They are seen at this end
// only; the wire carries the codes of a NAK.
type Reason uint8

// VendorErr returns the reason as WC.VendorErr, and as ibv_wc.vendor_err of C programs: 0x6700 and the reason, so that
// it is not taken for the code of a NIC's vendor. It is 0 for ReasonNone.
func (r Reason) VendorErr() uint32 {
	if r == ReasonNone {
		return 0
	}
	return vendorErr<<8 | uint32(r)
}

// ReasonOf returns the reason that a completion of a software device has in VendorErr, otherwise ReasonNone.
func ReasonOf(vendor uint32) Reason {
	if vendor>>8 != vendorErr {
		return ReasonNone
	}
	return Reason(vendor)
}

const vendorErr = 0x67

// Reasons.
const (
	ReasonNone Reason = 0 // nothing failed, or nobody knows why

	// Memory, of this end's requests and receives or of a peer's request.
	ReasonKey        Reason = 1 // no region or window has the key
	ReasonKeyEnded   Reason = 2 // the key was deregistered, invalidated or bound anew
	ReasonPD         Reason = 3 // the key belongs to another protection domain
	ReasonWindowQP   Reason = 4 // the memory window is bound to another QP
	ReasonAccess     Reason = 5 // the region or window does not grant the right
	ReasonBounds     Reason = 6 // the bytes are not all in the region or window
	ReasonBind       Reason = 7 // the window cannot be bound, or the key invalidated, in this way
	ReasonUnreadable Reason = 8 // the memory is registered, but its process has unmapped it or ended

	// A peer's request.
	ReasonQPAccess   Reason = 16 // the QP's access flags do not allow the operation
	ReasonAlignment  Reason = 17 // the address is not a multiple of 8
	ReasonLength     Reason = 18 // the length is not allowed, or the payload has another one
	ReasonSequence   Reason = 19 // the packet does not continue the message, or does not fill the path MTU
	ReasonTooLong    Reason = 20 // the message is longer than its receive
	ReasonReads      Reason = 21 // more READs and atomics at a time than MaxDestRdAtomic
	ReasonNoReceive  Reason = 22 // no receive was posted
	ReasonSRQ        Reason = 23 // the XRC SRQ does not exist, or is of another domain
	ReasonBadReceive Reason = 24 // the receive itself is not valid

	// A request of this end.
	ReasonOpcode        Reason = 32 // the QP's service has no such operation
	ReasonRequest       Reason = 33 // the work request is not valid
	ReasonRequestLength Reason = 34 // the message has a length that the operation does not allow
	ReasonNoReads       Reason = 35 // READs and atomics need MaxRdAtomic
	ReasonAH            Reason = 36 // the address handle does not exist, or is of another protection domain
	ReasonFrame         Reason = 37 // the path MTU is above the port's, and the message too long for a frame

	// What the peer answers, or does not.
	ReasonSilence      Reason = 48 // no answer, after all retries
	ReasonLoss         Reason = 49 // answers came, but the network lost too much, and no retry is left
	ReasonUnreachable  Reason = 50 // no answer, and an ICMP message said that nobody listens, or that there is no way
	ReasonPeerNotReady Reason = 51 // the peer had no receive, and no RNR retry is left
	ReasonPeerInvalid  Reason = 52 // the peer calls the request invalid
	ReasonPeerAccess   Reason = 53 // the peer does not allow the access
	ReasonPeerFailed   Reason = 54 // the peer could not carry the request out
	ReasonBadResponse  Reason = 55 // the response does not fit the request

	// The QP.
	ReasonCQOverrun Reason = 64 // a CQ was full: a completion is lost
	ReasonRing      Reason = 65 // the rings have contents that no library writes
	ReasonModified  Reason = 66 // the application has moved the QP to ERR
)

// Cause says why a request failed or was refused, in terms of the end that has found it. Which fields are set depends
// on Reason; String makes a sentence of them.
type Cause struct {
	Reason Reason
	Op     WROpcode // the request
	Peer   bool     // it is the peer's request, or a receive for one
	PSN    PSN      // of the packet

	Key    Key    // of the memory
	Addr   uint64 // first byte that the request names
	Length uint64 // bytes that it names, or that the message has
	Start  uint64 // address of the region's or window's first byte
	Size   uint64 // bytes that the region or window has, or the receive, or the operation allows
	Need   Access // rights that the request needs
	Have   Access // rights that there are

	Ended   KeyEnd  // ReasonKeyEnded: how
	By      QPN     // ReasonKeyEnded: the QP by which the key ended; ReasonWindowQP: the QP that has the window
	Since   Instant // ReasonKeyEnded, ReasonNoReceive: how long ago, in nanoseconds; 0 if that is not known
	Tries   uint32  // how often the packet was sent, or the peer was told to wait
	Answers uint32  // ReasonSilence, ReasonLoss: packets that came meanwhile, from this QP's peer
	Errno   uint32  // ReasonUnreachable, ReasonUnreadable: the Linux error number
}

// KeyEnd says how a key has ended.
type KeyEnd uint8

// Ends of keys.
const (
	KeyDeregistered      KeyEnd = 1 // by the application
	KeyInvalidated       KeyEnd = 2 // by a LOCAL INVALIDATE of this end
	KeyInvalidatedByPeer KeyEnd = 3 // by a SEND with invalidate
	KeyRebound           KeyEnd = 4 // the window was bound again, or freed
)

// Failure is why a QP failed, or why it refused a request.
type Failure struct {
	At    Instant // on the device's clock
	Cause Cause
}

var reasonText = [...]string{
	ReasonNone:          "not known",
	ReasonKey:           "no region or memory window has the key",
	ReasonKeyEnded:      "the key has ended",
	ReasonPD:            "the key belongs to another protection domain",
	ReasonWindowQP:      "the memory window is bound to another QP",
	ReasonAccess:        "the memory does not grant the right",
	ReasonBounds:        "the bytes are not all in the region",
	ReasonBind:          "the key cannot be bound or invalidated in this way",
	ReasonUnreadable:    "the process has unmapped the memory, or has ended",
	ReasonQPAccess:      "the QP's access flags do not allow the operation",
	ReasonAlignment:     "the address is not a multiple of 8",
	ReasonLength:        "the payload does not have the length of the request",
	ReasonSequence:      "the packet does not continue the message, or does not fill the path MTU",
	ReasonTooLong:       "the message is longer than the receive",
	ReasonReads:         "more READs and atomics at a time than MaxDestRdAtomic",
	ReasonNoReceive:     "no receive is posted",
	ReasonSRQ:           "no such XRC SRQ",
	ReasonBadReceive:    "the receive is not valid",
	ReasonOpcode:        "the QP's service has no such operation",
	ReasonRequest:       "the work request is not valid",
	ReasonRequestLength: "the operation does not allow the length",
	ReasonNoReads:       "MaxRdAtomic is 0",
	ReasonAH:            "no such address handle in the QP's protection domain",
	ReasonFrame:         "the path MTU is above the port's, and the message too long for a frame",
	ReasonSilence:       "the peer does not answer",
	ReasonLoss:          "the network loses too much",
	ReasonUnreachable:   "the peer cannot be reached",
	ReasonPeerNotReady:  "the peer has no receive posted",
	ReasonPeerInvalid:   "the peer calls the request invalid",
	ReasonPeerAccess:    "the peer does not allow the access",
	ReasonPeerFailed:    "the peer could not carry the request out",
	ReasonBadResponse:   "the response does not fit the request",
	ReasonCQOverrun:     "a completion queue was full",
	ReasonRing:          "the work queue has contents that no library writes",
	ReasonModified:      "the application has moved the QP to ERR",
}

// String describes the reason in a few words.
func (r Reason) String() string { return name(reasonText[:], int(r), "Reason") }

// causeText makes the sentences of the reasons whose numbers say more.
var causeText = map[Reason]func(*Cause) string{
	ReasonKey: func(c *Cause) string {
		return fmt.Sprintf("no region or memory window has the key %#x", uint32(c.Key))
	},
	ReasonKeyEnded: func(c *Cause) string { return fmt.Sprintf("the key %#x was %s", uint32(c.Key), c.ended()) },
	ReasonPD: func(c *Cause) string {
		return fmt.Sprintf("the key %#x belongs to another protection domain than the QP", uint32(c.Key))
	},
	ReasonWindowQP: func(c *Cause) string {
		return fmt.Sprintf("the memory window with key %#x is bound to QP %#x", uint32(c.Key), uint32(c.By))
	},
	ReasonAccess: func(c *Cause) string {
		return fmt.Sprintf("the memory with key %#x grants %s, not %s", uint32(c.Key), rights(c.Have),
			rights(c.Need&^c.Have))
	},
	ReasonBounds: (*Cause).bounds,
	ReasonUnreadable: func(c *Cause) string {
		return fmt.Sprintf("the memory with key %#x is registered, but its process has unmapped it or has ended",
			uint32(c.Key))
	},
	ReasonQPAccess: func(c *Cause) string {
		return fmt.Sprintf("the QP's access flags allow %s, not %s", rights(c.Have), rights(c.Need&^c.Have))
	},
	ReasonAlignment: func(c *Cause) string { return fmt.Sprintf("the address %#x is not a multiple of 8", c.Addr) },
	ReasonLength: func(c *Cause) string {
		return fmt.Sprintf("its packets carry %d bytes where the request says %d", c.Length, c.Size)
	},
	ReasonTooLong: func(c *Cause) string {
		return fmt.Sprintf("the message has at least %d bytes, its receive has room for %d", c.Length, c.Size)
	},
	ReasonReads: func(c *Cause) string {
		return fmt.Sprintf("the QP answers %d READs and atomics at a time (MaxDestRdAtomic), and this was one more",
			c.Size)
	},
	ReasonNoReceive: func(c *Cause) string {
		return fmt.Sprintf("no receive was posted%s; the peer was told to wait %s", since(c.Since, " for "),
			times(c.Tries))
	},
	ReasonRequestLength: func(c *Cause) string {
		return fmt.Sprintf("the message has %d bytes, the operation takes %d here", c.Length, c.Size)
	},
	ReasonFrame: func(c *Cause) string {
		return fmt.Sprintf("the path MTU is above the port's active MTU, and of %d bytes only %d fit a frame", c.Length,
			c.Size)
	},
	ReasonSilence: func(c *Cause) string {
		return fmt.Sprintf("the packet with PSN %d was sent %s, and nothing came back", c.PSN, times(c.Tries))
	},
	ReasonUnreachable: func(c *Cause) string {
		text := fmt.Sprintf("the packet with PSN %d was sent %s, and nothing came back but ICMP messages: ", c.PSN,
			times(c.Tries))
		switch c.Errno {
		case 13: // EACCES
			return text + "a firewall on the way refuses it"
		case 101: // ENETUNREACH
			return text + "there is no route to the peer's network"
		case 111: // ECONNREFUSED
			return text + "the peer's UDP port 4791 is closed; is goroced, or rdma_rxe, running there?"
		}
		return text + "no host there answers for the peer's address"
	},
	ReasonLoss: func(c *Cause) string {
		return fmt.Sprintf("the packet with PSN %d was sent %s; meanwhile %d packets came, but none acknowledged it",
			c.PSN, times(c.Tries), c.Answers)
	},
	ReasonPeerNotReady: func(c *Cause) string {
		return fmt.Sprintf("the peer had no receive posted, %s (RNR NAK)", times(c.Tries))
	},
}

// causeHint is what to look at next.
var causeHint = map[Reason]string{
	ReasonFrame:        "give both QPs the active MTU of the port, or the interfaces a larger MTU",
	ReasonSilence:      "is the peer's QP in RTR or RTS, with this QP as its peer? does UDP port 4791 pass both ways?",
	ReasonLoss:         "look for loss on the way, or raise RetryCnt and Timeout",
	ReasonPeerNotReady: "post receives there before this end sends, or set RNRRetry to 7",
	ReasonPeerInvalid:  "its side says why",
	ReasonPeerAccess:   "its side says which key and which right",
	ReasonPeerFailed:   "its side says why",
	ReasonNoReceive:    "post more receives",
	ReasonCQOverrun:    "poll more often, or make the CQ as large as all queues that use it",
}

// String says in a sentence what failed and why.
func (c Cause) String() string {
	text := c.Reason.String()
	if f := causeText[c.Reason]; f != nil {
		text = f(&c)
	}
	if hint := causeHint[c.Reason]; hint != "" {
		text += " (" + hint + ")"
	}
	switch {
	case c.Reason == ReasonNone || c.Reason >= ReasonCQOverrun:
		return text
	case c.Peer:
		return fmt.Sprintf("the peer's %v was refused: %s", c.Op, text)
	case c.Reason <= ReasonUnreadable && c.Op != WRBindMW && c.Op != WRLocalInv:
		text += " (this end's own memory, by its lkey)"
	}
	return fmt.Sprintf("%v: %s", c.Op, text)
}

// bounds says how far an access misses its region.
func (c *Cause) bounds() string {
	where := fmt.Sprintf("region %#x, which has %d bytes from %#x on", uint32(c.Key), c.Size, c.Start)
	switch {
	case c.Addr < c.Start:
		return fmt.Sprintf("%d bytes at %#x begin %d bytes before %s", c.Length, c.Addr, c.Start-c.Addr, where)
	case c.Addr-c.Start >= c.Size:
		return fmt.Sprintf("%d bytes at %#x begin %d bytes beyond the end of %s", c.Length, c.Addr,
			c.Addr-c.Start-c.Size, where)
	}
	return fmt.Sprintf("%d bytes at %#x go %d bytes beyond the end of %s", c.Length, c.Addr,
		c.Length-(c.Size-(c.Addr-c.Start)), where)
}

// ended says how, when and by whom a key has ended.
func (c *Cause) ended() string {
	how := map[KeyEnd]string{
		KeyDeregistered:      "deregistered by the application",
		KeyInvalidated:       fmt.Sprintf("invalidated by a request on QP %#x", uint32(c.By)),
		KeyInvalidatedByPeer: fmt.Sprintf("invalidated by the peer of QP %#x", uint32(c.By)),
		KeyRebound:           "a memory window's, which was bound again or freed",
	}[c.Ended]
	if c.Since > 0 {
		how += since(c.Since, " ") + " before"
	}
	return how
}

// since says how long, after a word.
func since(d Instant, word string) string {
	if d <= 0 {
		return ""
	}
	return word + time.Duration(d).Round(time.Duration(max(d/1000, 1))).String()
}

func times(n uint32) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// rightNames has the rights as the fields of QPAttr.Access and of registrations are called.
var rightNames = []struct {
	right Access
	name  string
}{
	{LocalWrite, "local write"}, {RemoteWrite, "remote write"}, {RemoteRead, "remote read"},
	{RemoteAtomic, "remote atomic"}, {BindWindows, "bind windows"}, {FlushGlobal, "flush global"},
	{FlushPersistent, "flush persistent"}, {RemoteInvalidate, "remote invalidate"},
}

// rights names access rights.
func rights(a Access) string {
	var names []string
	for _, r := range rightNames {
		if a&r.right != 0 {
			names = append(names, r.name)
		}
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
