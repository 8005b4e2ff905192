package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// This file is about packets that differ from the one before in nothing but PSN,
// payload and, of WRITEs, address, and ask for no ACK: what long messages and trains
// of WRITE ONLYs mostly are. They may be written and read without looking at each field.

// alikeLens are the lengths of the headers of such packets.
var alikeLens = [256]uint8{
	RCWriteOnly:      BTHLen + RETHLen,
	RCSendMiddle:     BTHLen,
	RCReadRespMiddle: BTHLen,
}

// AlikeLen returns the length of the headers of packets with an opcode that may be
// alike, and 0 for others.
func AlikeLen(op Opcode) int { return int(alikeLens[op]) }

// PutAlike writes the headers of a packet like the one before. Only a WRITE has va.
func PutAlike(frame, before []byte, psn ib.PSN, va uint64) {
	n := AlikeLen(Opcode(before[0]))
	copy(frame[:n], before[:n])
	binary.BigEndian.PutUint32(frame[8:], uint32(psn&ib.PSNMask))
	if n > BTHLen {
		binary.BigEndian.PutUint64(frame[BTHLen:], va)
	}
}

// Alike reports whether frame, BTH to ICRC as the one before, is like it and next.
func Alike(frame, before []byte) bool {
	if len(frame) != len(before) || len(frame) < BTHLen+ICRCLen {
		return false
	}
	n := AlikeLen(Opcode(before[0]))
	if n == 0 || len(frame) < n+ICRCLen {
		return false
	}
	be := binary.BigEndian
	next := (be.Uint32(before[8:]) + 1) & uint32(ib.PSNMask)
	return be.Uint64(frame) == be.Uint64(before) && be.Uint32(frame[8:]) == next &&
		(n == BTHLen || be.Uint64(frame[n-8:]) == be.Uint64(before[n-8:])) // R_Key and length
}

// AlikeVA returns the address of a WRITE ONLY.
func AlikeVA(frame []byte) uint64 { return binary.BigEndian.Uint64(frame[BTHLen:]) }
