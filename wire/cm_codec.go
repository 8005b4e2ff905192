package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// Decode reads what follows the MAD header.
func (m *MRA) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID, m.RemoteID = getIDs(b)
	m.Message = CMMessage(b[8] >> 6)
	m.ServiceTimeout = b[9] >> 3
	m.PrivateData = b[10:]
}

// Put writes what follows the MAD header.
func (m *MRA) Put(mad *[MADLen]byte) {
	b := putPrivate(mad, 10, m.PrivateData)
	putIDs(b, m.LocalID, m.RemoteID)
	b[8] = uint8(m.Message) << 6
	b[9] = m.ServiceTimeout << 3
}

// Decode reads what follows the MAD header.
func (m *REJ) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID, m.RemoteID = getIDs(b)
	m.Message = CMMessage(b[8] >> 6)
	m.Reason = ib.RejectReason(binary.BigEndian.Uint16(b[10:]))
	m.Info = getInfo(b[12:84], b[9]>>1)
	m.PrivateData = b[84:]
}

// Put writes what follows the MAD header.
func (m *REJ) Put(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	n := putData(b[12:84], m.Info)
	putData(b[84:], m.PrivateData)
	putIDs(b, m.LocalID, m.RemoteID)
	b[8] = uint8(m.Message) << 6
	b[9] = uint8(n) << 1
	binary.BigEndian.PutUint16(b[10:], uint16(m.Reason))
}

// Decode reads what follows the MAD header.
func (m *REP) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID, m.RemoteID = getIDs(b)
	m.QKey = binary.BigEndian.Uint32(b[8:])
	m.QPN = ib.QPN(getHigh24(b[12:]))
	m.StartingPSN = ib.PSN(getHigh24(b[20:]))
	m.ResponderResources = b[24]
	m.InitiatorDepth = b[25]
	m.TargetACKDelay = b[26] >> 3
	m.FailoverAccepted = b[26] >> 1 & 3
	m.FlowControl = b[26]&1 != 0
	m.RNRRetry = b[27] >> 5
	m.SRQ = b[27]>>4&1 != 0
	m.CAGUID = binary.BigEndian.Uint64(b[28:])
	m.PrivateData = b[36:]
}

// Put writes what follows the MAD header.
func (m *REP) Put(mad *[MADLen]byte) {
	b := putPrivate(mad, 36, m.PrivateData)
	putIDs(b, m.LocalID, m.RemoteID)
	binary.BigEndian.PutUint32(b[8:], m.QKey)
	putHigh24(b[12:], uint32(m.QPN), 0)
	putHigh24(b[20:], uint32(m.StartingPSN), 0)
	b[24] = m.ResponderResources
	b[25] = m.InitiatorDepth
	b[26] = m.TargetACKDelay<<3 | m.FailoverAccepted&3<<1 | bit(m.FlowControl)
	b[27] = m.RNRRetry<<5 | bit(m.SRQ)<<4
	binary.BigEndian.PutUint64(b[28:], m.CAGUID)
}

// Decode reads what follows the MAD header.
func (m *RTU) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID, m.RemoteID = getIDs(b)
	m.PrivateData = b[8:]
}

// Put writes what follows the MAD header.
func (m *RTU) Put(mad *[MADLen]byte) {
	putIDs(putPrivate(mad, 8, m.PrivateData), m.LocalID, m.RemoteID)
}

// Decode reads what follows the MAD header.
func (m *DREQ) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID, m.RemoteID = getIDs(b)
	m.RemoteQPN = ib.QPN(getHigh24(b[8:]))
	m.PrivateData = b[12:]
}

// Put writes what follows the MAD header.
func (m *DREQ) Put(mad *[MADLen]byte) {
	b := putPrivate(mad, 12, m.PrivateData)
	putIDs(b, m.LocalID, m.RemoteID)
	putHigh24(b[8:], uint32(m.RemoteQPN), 0)
}

// Decode reads what follows the MAD header.
func (m *DREP) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.LocalID, m.RemoteID = getIDs(b)
	m.PrivateData = b[8:]
}

// Put writes what follows the MAD header.
func (m *DREP) Put(mad *[MADLen]byte) {
	putIDs(putPrivate(mad, 8, m.PrivateData), m.LocalID, m.RemoteID)
}

// Decode reads what follows the MAD header.
func (m *SIDRREQ) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.RequestID = binary.BigEndian.Uint32(b)
	m.PKey = binary.BigEndian.Uint16(b[4:])
	m.ServiceID = binary.BigEndian.Uint64(b[8:])
	m.PrivateData = b[16:]
}

// Put writes what follows the MAD header.
func (m *SIDRREQ) Put(mad *[MADLen]byte) {
	b := putPrivate(mad, 16, m.PrivateData)
	binary.BigEndian.PutUint32(b, m.RequestID)
	binary.BigEndian.PutUint16(b[4:], m.PKey)
	binary.BigEndian.PutUint64(b[8:], m.ServiceID)
}

// Decode reads what follows the MAD header.
func (m *SIDRREP) Decode(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	m.RequestID = binary.BigEndian.Uint32(b)
	m.Status = ib.SIDRStatus(b[4])
	m.QPN = ib.QPN(getHigh24(b[8:]))
	m.ServiceID = binary.BigEndian.Uint64(b[12:])
	m.QKey = binary.BigEndian.Uint32(b[20:])
	m.Info = getInfo(b[24:96], b[5])
	m.PrivateData = b[96:]
}

// Put writes what follows the MAD header.
func (m *SIDRREP) Put(mad *[MADLen]byte) {
	b := mad[MADHeaderLen:]
	n := putData(b[24:96], m.Info)
	putData(b[96:], m.PrivateData)
	binary.BigEndian.PutUint32(b, m.RequestID)
	binary.BigEndian.PutUint32(b[4:], uint32(m.Status)<<24|uint32(n)<<16)
	putHigh24(b[8:], uint32(m.QPN), 0)
	binary.BigEndian.PutUint64(b[12:], m.ServiceID)
	binary.BigEndian.PutUint32(b[20:], m.QKey)
}

// getIDs returns the communication IDs that most messages begin with.
func getIDs(b []byte) (local, remote uint32) {
	return binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
}

func putIDs(b []byte, local, remote uint32) {
	binary.BigEndian.PutUint32(b, local)
	binary.BigEndian.PutUint32(b[4:], remote)
}

// getHigh24 returns the upper three bytes of a word: a QP number or a PSN.
func getHigh24(b []byte) uint32 { return binary.BigEndian.Uint32(b) >> 8 }

// putHigh24 writes a word whose upper three bytes are high and whose last byte is low.
func putHigh24(b []byte, high uint32, low uint8) {
	binary.BigEndian.PutUint32(b, high<<8|uint32(low))
}

// getInfo returns the first n bytes of the field of additional information, all of it if n is beyond its end.
func getInfo(field []byte, n uint8) []byte {
	n = min(n, uint8(len(field)))
	return field[:n:n]
}

// putPrivate writes private data from offset off of a message to its end, zeroes everything before, and returns the
// message.
func putPrivate(mad *[MADLen]byte, off int, data []byte) []byte {
	b := mad[MADHeaderLen:]
	putData(b[off:], data)
	clear(b[:off])
	return b
}

// putData writes data into a field and zeroes the rest. It returns how many bytes of data fit.
func putData(field, data []byte) int {
	n := copy(field, data)
	clear(field[n:])
	return n
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
