package decode

import (
	"fmt"
	"strings"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/trace"
	"github.com/goroce/goroce/wire"
)

// madText returns the name and a description of the management datagram in a packet to QP 1. Both are empty if there is
// none.
func madText(p *wire.Packet) (name, says string) {
	mad := p.MAD()
	if mad == nil {
		return "", ""
	}
	return MADText(mad)
}

// MADText returns the name of a management datagram, and what it says; "" if the name suffices.
func MADText(mad *[wire.MADLen]byte) (name, says string) {
	var h wire.MADHeader
	h.Decode(mad)
	if m := cmMessageOf(&h); m != nil {
		m.Decode(mad)
		return h.Name(), m.says()
	}
	return h.Name(), fmt.Sprintf("class %#02x method %#02x attribute %#04x", h.Class, h.Method, uint16(h.Attr))
}

// cmMessage is a message of the connection manager that can describe itself.
type cmMessage interface {
	Decode(mad *[wire.MADLen]byte)
	says() string          // description, "" if the name suffices
	fields(line fieldLine) // writes all fields
}

// cmMessageOf returns an empty message of the type in the header, nil if the type is not known.
func cmMessageOf(h *wire.MADHeader) cmMessage {
	if h.Class != wire.MADClassCM {
		return nil
	}
	switch h.Attr {
	case wire.AttrREQ:
		return new(cmREQ)
	case wire.AttrMRA:
		return new(cmMRA)
	case wire.AttrREJ:
		return new(cmREJ)
	case wire.AttrREP:
		return new(cmREP)
	case wire.AttrRTU:
		return new(cmRTU)
	case wire.AttrDREQ:
		return new(cmDREQ)
	case wire.AttrDREP:
		return new(cmDREP)
	case wire.AttrSIDRREQ:
		return new(cmSIDRREQ)
	case wire.AttrSIDRREP:
		return new(cmSIDRREP)
	}
	return nil
}

type (
	cmREQ     struct{ wire.REQ }
	cmMRA     struct{ wire.MRA }
	cmREJ     struct{ wire.REJ }
	cmREP     struct{ wire.REP }
	cmRTU     struct{ wire.RTU }
	cmDREQ    struct{ wire.DREQ }
	cmDREP    struct{ wire.DREP }
	cmSIDRREQ struct{ wire.SIDRREQ }
	cmSIDRREP struct{ wire.SIDRREP }
)

func (m *cmREQ) says() string {
	return fmt.Sprintf("my qp %#x, send me psn %d first, path MTU %d, service %s", uint32(m.QPN), m.StartingPSN,
		m.PathMTU, serviceText(m.ServiceID))
}

func (m *cmMRA) says() string {
	return fmt.Sprintf("has the %s, answers within %s", mraMessage(m.Message), timeoutText(m.ServiceTimeout))
}

func (m *cmREJ) says() string {
	what := "refuses"
	if m.Message != wire.MessageOther {
		what += fmt.Sprintf(" the %v", m.Message)
	}
	return fmt.Sprintf("%s: %s", what, numbered(m.Reason))
}

func (m *cmREP) says() string {
	return fmt.Sprintf("my qp %#x, send me psn %d first", uint32(m.QPN), m.StartingPSN)
}

func (m *cmRTU) says() string { return "" }

func (m *cmDREQ) says() string { return fmt.Sprintf("disconnect qp %#x", uint32(m.RemoteQPN)) }

func (m *cmDREP) says() string { return "" }

func (m *cmSIDRREQ) says() string { return "service " + serviceText(m.ServiceID) }

func (m *cmSIDRREP) says() string {
	if m.Status != ib.SIDRValid {
		return numbered(m.Status)
	}
	return fmt.Sprintf("%s: qp %#x, qkey %#08x", m.Status, uint32(m.QPN), m.QKey)
}

// serviceText formats a service ID; those of rdma_cm have a port space and a port.
func serviceText(id uint64) string {
	if space, port, ok := wire.SplitServiceID(id); ok {
		return fmt.Sprintf("%v port %d", space, port)
	}
	return fmt.Sprintf("%#x", id)
}

// mraMessage returns the name of the message that an MRA refers to (IBTA 12.6.6). The value that in a REJ means "other"
// means LAP.
func mraMessage(m wire.CMMessage) string {
	if m == wire.MessageOther {
		return wire.AttrLAP.String()
	}
	return m.String()
}

// timeoutText formats the duration of a 5-bit code of the connection manager: 4.096 us * 2^code.
func timeoutText(code uint8) string { return trace.Elapsed(4096 << code) }

// numbered formats a value as words and number, or as the number if there are no words for it.
func numbered[T interface {
	~uint8 | ~uint16
	fmt.Stringer
}](v T) string {
	s := v.String()
	if strings.HasSuffix(s, ")") {
		return s
	}
	return fmt.Sprintf("%s (%d)", s, uint16(v))
}
