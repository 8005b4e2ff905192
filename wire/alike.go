package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// AlikeLen is the length of the headers of what this file is about: WRITE ONLYs that
// differ from the one before in PSN and address only, and ask for no ACK.
const AlikeLen = BTHLen + RETHLen

// PutAlike writes the headers of such a packet.
func PutAlike(frame, before []byte, psn ib.PSN, va uint64) {
	copy(frame[:AlikeLen], before[:AlikeLen])
	binary.BigEndian.PutUint32(frame[8:], uint32(psn&ib.PSNMask))
	binary.BigEndian.PutUint64(frame[BTHLen:], va)
}

// Alike reports whether frame, BTH to ICRC as the one before, is one, with the next PSN.
func Alike(frame, before []byte) bool {
	if len(frame) != len(before) || len(frame) < AlikeLen+ICRCLen {
		return false
	}
	const keyLen = AlikeLen - 8 // where R_Key and length begin
	be := binary.BigEndian
	next := (be.Uint32(before[8:]) + 1) & uint32(ib.PSNMask)
	return Opcode(before[0]) == RCWriteOnly && be.Uint64(frame) == be.Uint64(before) &&
		be.Uint32(frame[8:]) == next && be.Uint64(frame[keyLen:]) == be.Uint64(before[keyLen:])
}

// AlikeWrite returns where a frame that is Alike goes, and its payload of n bytes.
func AlikeWrite(frame []byte, n int) (va uint64, payload []byte) {
	return binary.BigEndian.Uint64(frame[BTHLen:]), frame[AlikeLen : AlikeLen+n : AlikeLen+n]
}
