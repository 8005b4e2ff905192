package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// Offsets of the two paths of a REQ, and of its private data.
const (
	reqPrimary   = 52
	reqAlternate = reqPrimary + cmPathLen
	reqPrivate   = reqAlternate + cmPathLen
	cmPathLen    = 44
)

// Decode reads what follows the MAD header.
func (m *REQ) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID = binary.BigEndian.Uint32(b)
	m.ServiceID = binary.BigEndian.Uint64(b[8:])
	m.CAGUID = binary.BigEndian.Uint64(b[16:])
	m.QKey = binary.BigEndian.Uint32(b[28:])
	m.QPN = ib.QPN(getHigh24(b[32:]))
	m.ResponderResources = b[35]
	m.InitiatorDepth = b[39]
	m.RemoteResponseTimeout = b[43] >> 3
	m.Transport = b[43] >> 1 & 3
	m.FlowControl = b[43]&1 != 0
	m.StartingPSN = ib.PSN(getHigh24(b[44:]))
	m.LocalResponseTimeout = b[47] >> 3
	m.RetryCount = b[47] & 7
	m.PKey = binary.BigEndian.Uint16(b[48:])
	m.PathMTU = ib.MTUFromCode(int(b[50] >> 4))
	m.RDCExists = b[50]>>3&1 != 0
	m.RNRRetry = b[50] & 7
	m.MaxCMRetries = b[51] >> 4
	m.SRQ = b[51]>>3&1 != 0
	m.ExtTransport = b[51] & 7
	m.Primary.decode(b[reqPrimary:reqAlternate])
	m.Alternate.decode(b[reqAlternate:reqPrivate])
	m.PrivateData = b[reqPrivate:]
}

// Put writes what follows the MAD header. An invalid path MTU becomes code 0.
func (m *REQ) Put(mad *[MADLen]byte) {
	b := putPrivate(mad, reqPrivate, m.PrivateData)
	binary.BigEndian.PutUint32(b, m.LocalID)
	binary.BigEndian.PutUint64(b[8:], m.ServiceID)
	binary.BigEndian.PutUint64(b[16:], m.CAGUID)
	binary.BigEndian.PutUint32(b[28:], m.QKey)
	putHigh24(b[32:], uint32(m.QPN), m.ResponderResources)
	b[39] = m.InitiatorDepth
	b[43] = m.RemoteResponseTimeout<<3 | m.Transport&3<<1 | bit(m.FlowControl)
	putHigh24(b[44:], uint32(m.StartingPSN), m.LocalResponseTimeout<<3|m.RetryCount&7)
	binary.BigEndian.PutUint16(b[48:], m.PKey)
	b[50] = uint8(m.PathMTU.Code())<<4 | bit(m.RDCExists)<<3 | m.RNRRetry&7
	b[51] = m.MaxCMRetries<<4 | bit(m.SRQ)<<3 | m.ExtTransport&7
	m.Primary.put(b[reqPrimary:reqAlternate])
	m.Alternate.put(b[reqAlternate:reqPrivate])
}

func (p *CMPath) decode(b []byte) {
	_ = b[cmPathLen-1]
	p.LocalLID = binary.BigEndian.Uint16(b)
	p.RemoteLID = binary.BigEndian.Uint16(b[2:])
	p.LocalGID = ib.GID(b[4:20])
	p.RemoteGID = ib.GID(b[20:36])
	p.FlowLabel = binary.BigEndian.Uint32(b[36:]) >> 12
	p.Rate = b[39] & 0x3F
	p.TrafficClass = b[40]
	p.HopLimit = b[41]
	p.SL = b[42] >> 4
	p.SubnetLocal = b[42]>>3&1 != 0
	p.AckTimeout = b[43] >> 3
}

func (p *CMPath) put(b []byte) {
	_ = b[cmPathLen-1]
	binary.BigEndian.PutUint16(b, p.LocalLID)
	binary.BigEndian.PutUint16(b[2:], p.RemoteLID)
	copy(b[4:], p.LocalGID[:])
	copy(b[20:], p.RemoteGID[:])
	binary.BigEndian.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.Rate&0x3F))
	b[40] = p.TrafficClass
	b[41] = p.HopLimit
	b[42] = p.SL<<4 | bit(p.SubnetLocal)<<3
	b[43] = p.AckTimeout << 3
}
