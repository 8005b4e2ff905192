package decode

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/goroce/goroce/wire"
)

// madFields writes the header of a management datagram, and the fields of its message. If it is not a message of the
// connection manager, it writes the bytes.
func madFields(line fieldLine, mad *[wire.MADLen]byte) {
	var h wire.MADHeader
	h.Decode(mad)
	line("MAD",
		"version %d class %#02x class version %d method %#02x status %#04x tid %#x attribute %#04x modifier %#x",
		h.BaseVersion, h.Class, h.ClassVersion, h.Method, h.Status, h.TID, uint16(h.Attr), h.Modifier)
	m := cmMessageOf(&h)
	if m == nil {
		dataFields(line, "data", mad[wire.MADHeaderLen:])
		return
	}
	m.Decode(mad)
	first := true
	m.fields(func(name, format string, args ...any) {
		if first {
			name, first = h.Attr.String(), false
		}
		line(name, format, args...)
	})
}

func (m *cmREQ) fields(line fieldLine) {
	line("", "local id %#08x service %s ca guid %#016x", m.LocalID, serviceField(m.ServiceID), m.CAGUID)
	line("", "qp %#x qkey %#08x psn %d (%#06x) transport %d ext transport %d srq %d rdc %d flow control %d",
		uint32(m.QPN), m.QKey, m.StartingPSN, uint32(m.StartingPSN), m.Transport, m.ExtTransport, bit(m.SRQ),
		bit(m.RDCExists), bit(m.FlowControl))
	line("", "responder resources %d initiator depth %d retry %d rnr retry %d path MTU %d pkey %#04x",
		m.ResponderResources, m.InitiatorDepth, m.RetryCount, m.RNRRetry, m.PathMTU, m.PKey)
	line("", "response timeout remote %s local %s max cm retries %d",
		codeText(m.RemoteResponseTimeout), codeText(m.LocalResponseTimeout), m.MaxCMRetries)
	pathFields(line, "primary", &m.Primary)
	pathFields(line, "alternate", &m.Alternate)
	rdmaCMFields(line, m.ServiceID, m.PrivateData)
}

func pathFields(line fieldLine, name string, p *wire.CMPath) {
	if *p == (wire.CMPath{}) {
		line(name, "none: all fields are 0")
		return
	}
	line(name, "%v -> %v lid %#04x -> %#04x flow label %#05x traffic class %#02x hop limit %d",
		p.LocalGID.Addr(), p.RemoteGID.Addr(), p.LocalLID, p.RemoteLID, p.FlowLabel, p.TrafficClass, p.HopLimit)
	line("", "sl %d subnet local %d rate %d ack timeout %s", p.SL, bit(p.SubnetLocal), p.Rate, codeText(p.AckTimeout))
}

func (m *cmMRA) fields(line fieldLine) {
	line("", "%s message %s (%d) service timeout %s", idsText(m.LocalID, m.RemoteID), mraMessage(m.Message), m.Message,
		codeText(m.ServiceTimeout))
	dataFields(line, "private", m.PrivateData)
}

func (m *cmREJ) fields(line fieldLine) {
	line("", "%s message %s reason %s", idsText(m.LocalID, m.RemoteID), numbered(m.Message), numbered(m.Reason))
	dataFields(line, "info", m.Info)
	dataFields(line, "private", m.PrivateData)
}

func (m *cmREP) fields(line fieldLine) {
	line("", "%s ca guid %#016x", idsText(m.LocalID, m.RemoteID), m.CAGUID)
	line("", "qp %#x qkey %#08x psn %d (%#06x) srq %d flow control %d failover %d",
		uint32(m.QPN), m.QKey, m.StartingPSN, uint32(m.StartingPSN), bit(m.SRQ), bit(m.FlowControl), m.FailoverAccepted)
	line("", "responder resources %d initiator depth %d rnr retry %d target ack delay %s",
		m.ResponderResources, m.InitiatorDepth, m.RNRRetry, codeText(m.TargetACKDelay))
	dataFields(line, "private", m.PrivateData)
}

func (m *cmRTU) fields(line fieldLine) {
	line("", "%s", idsText(m.LocalID, m.RemoteID))
	dataFields(line, "private", m.PrivateData)
}

func (m *cmDREQ) fields(line fieldLine) {
	line("", "%s remote qp %#x", idsText(m.LocalID, m.RemoteID), uint32(m.RemoteQPN))
	dataFields(line, "private", m.PrivateData)
}

func (m *cmDREP) fields(line fieldLine) {
	line("", "%s", idsText(m.LocalID, m.RemoteID))
	dataFields(line, "private", m.PrivateData)
}

func (m *cmSIDRREQ) fields(line fieldLine) {
	line("", "request id %#08x service %s pkey %#04x", m.RequestID, serviceField(m.ServiceID), m.PKey)
	rdmaCMFields(line, m.ServiceID, m.PrivateData)
}

func (m *cmSIDRREP) fields(line fieldLine) {
	line("", "request id %#08x status %s qp %#x qkey %#08x service %s",
		m.RequestID, numbered(m.Status), uint32(m.QPN), m.QKey, serviceField(m.ServiceID))
	dataFields(line, "info", m.Info)
	dataFields(line, "private", m.PrivateData)
}

// rdmaCMFields writes the header that rdma_cm puts before private data, and the data. Only service IDs with a port have
// it.
func rdmaCMFields(line fieldLine, service uint64, private []byte) {
	if _, _, ok := wire.SplitServiceID(service); ok {
		var h wire.CMHeader
		if err := h.Decode(private); err != nil {
			line("rdma_cm", "malformed: %v", err)
		} else {
			line("rdma_cm", "%v -> %v source port %d", h.Src.Addr(), h.Dst.Addr(), h.SrcPort)
			private = private[wire.CMHeaderLen:]
		}
	}
	dataFields(line, "private", private)
}

// dataFields writes bytes without the zeros at their end, of which private data usually has many.
func dataFields(line fieldLine, name string, b []byte) {
	data := bytes.TrimRight(b, "\x00")
	text := fmt.Sprintf("%d bytes: ", len(b))
	for chunk := range slices.Chunk(data, shownPayload) {
		line(name, "%s% x", text, chunk)
		name, text = "", ""
	}
	switch len(b) - len(data) {
	case 0:
	case len(b):
		line(name, "%sall zero", text)
	default:
		line(name, "then zeros")
	}
}

// serviceField formats a service ID, with its port if it has one.
func serviceField(id uint64) string {
	s := fmt.Sprintf("%#016x", id)
	if _, _, ok := wire.SplitServiceID(id); ok {
		s += " (" + serviceText(id) + ")"
	}
	return s
}

func idsText(local, remote uint32) string {
	return fmt.Sprintf("local id %#08x remote id %#08x", local, remote)
}

// codeText formats a 5-bit code with its duration.
func codeText(code uint8) string { return fmt.Sprintf("%d (%s)", code, timeoutText(code)) }
