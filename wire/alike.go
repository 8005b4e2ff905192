package wire

import (
	"encoding/binary"

	"github.com/goroce/goroce/ib"
)

// This file is header prediction: it is about packets that differ from the one before only in PSN, payload and, for
// WRITE ONLY, address and AckReq. Most packets of long messages, of trains of WRITE ONLYs and of many short WRITEs are
// so. They can be written and read without encoding and decoding each field.

// alikeLens has the length of the headers of such packets by opcode.
var alikeLens = [256]uint8{
	RCWriteOnly:      BTHLen + RETHLen,
	RCSendMiddle:     BTHLen,
	RCReadRespMiddle: BTHLen,
}

// AlikeLen returns the length of the headers of packets with this opcode, 0 if such packets can never be alike.
func AlikeLen(op Opcode) int { return int(alikeLens[op]) }

// PutAlike writes to frame the headers of the packet after the one whose headers are in before. va is the address of a
// WRITE ONLY; other packets have none, and do not ask for an ACK.
func PutAlike(frame, before []byte, psn ib.PSN, va uint64, asks bool) {
	n := AlikeLen(Opcode(before[0]))
	copy(frame[:n], before[:n])
	binary.BigEndian.PutUint32(frame[8:], uint32(flag(asks, bthAckReq))<<24|uint32(psn&ib.PSNMask))
	if n > BTHLen {
		binary.BigEndian.PutUint64(frame[BTHLen:], va)
	}
}

// Alike reports whether frame is the packet after the one in before, both from BTH to ICRC, and differs from it only in
// PSN, payload, ICRC and, for WRITE ONLY, address and AckReq. Other packets that are alike do not ask for an ACK.
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
	if be.Uint64(frame) != be.Uint64(before) {
		return false
	}
	if n == BTHLen {
		return be.Uint32(frame[8:]) == next
	}
	return be.Uint32(frame[8:])&^(bthAckReq<<24) == next &&
		be.Uint64(frame[n-8:]) == be.Uint64(before[n-8:]) // R_Key and length
}

// AlikeAsks reports whether such a packet asks for an ACK.
func AlikeAsks(frame []byte) bool { return frame[8]&bthAckReq != 0 }

// AlikeVA returns the address of a WRITE ONLY.
func AlikeVA(frame []byte) uint64 { return binary.BigEndian.Uint64(frame[BTHLen:]) }
