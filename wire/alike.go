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
