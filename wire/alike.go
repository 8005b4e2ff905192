package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// PutAlike writes the headers of a WRITE ONLY that differs from the one before in
// PSN and address only, and asks for no ACK. It returns their length.
func PutAlike(frame, before []byte, psn ib.PSN, va uint64) int {
	const n = BTHLen + RETHLen
	copy(frame[:n], before[:n])
	binary.BigEndian.PutUint32(frame[8:], uint32(psn&ib.PSNMask))
	binary.BigEndian.PutUint64(frame[BTHLen:], va)
	return n
}

// Alike reports whether frame, BTH to ICRC as the one before, may be one that PutAlike
// began: before is a WRITE ONLY, frame has the PSN behind it and asks for no ACK, and
// nothing but the address differs.
func Alike(frame, before []byte) bool {
	const n = BTHLen + RETHLen
	if len(frame) != len(before) || len(frame) < n+ICRCLen {
		return false
	}
	be := binary.BigEndian
	next := (be.Uint32(before[8:]) + 1) & uint32(ib.PSNMask)
	return Opcode(before[0]) == RCWriteOnly && be.Uint64(frame) == be.Uint64(before) &&
		be.Uint32(frame[8:]) == next && be.Uint64(frame[n-8:]) == be.Uint64(before[n-8:])
}

// AlikeWrite returns where a frame that is Alike goes, and its payload of n bytes.
func AlikeWrite(frame []byte, n int) (va uint64, payload []byte) {
	const header = BTHLen + RETHLen
	return binary.BigEndian.Uint64(frame[BTHLen:]), frame[header : header+n : header+n]
}
