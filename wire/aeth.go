package wire

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/goroce/goroce/ib"
)

// AETH is the ACK extended transport header (IBTA 9.3.5).
type AETH struct {
	Syndrome Syndrome
	MSN      ib.PSN // number of messages that the responder has completed, modulo 2^24 (IBTA 9.7.7)
}

func (h *AETH) decode(b []byte) {
	v := binary.BigEndian.Uint32(b)
	h.Syndrome = Syndrome(v >> 24)
	h.MSN = ib.PSN(v) & ib.PSNMask
}

func (h *AETH) put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(h.Syndrome)<<24|uint32(h.MSN&ib.PSNMask))
}

// Syndrome is the first byte of the AETH: the upper three bits say ACK, RNR NAK or NAK, the lower five are a code (IBTA
// 9.3.5, 9.7.5).
type Syndrome uint8

// Syndromes.
const (
	// AckNoCredits is an ACK of a responder that does not count credits. rdma_rxe sends no other.
	AckNoCredits Syndrome = 0x1F

	NAKSequence       Syndrome = 0x60 // packets before this PSN are missing
	NAKInvalidRequest Syndrome = 0x61
	NAKRemoteAccess   Syndrome = 0x62
	NAKRemoteOp       Syndrome = 0x63
	NAKInvalidRD      Syndrome = 0x64

	syndromeKind = 0xE0
	syndromeCode = 0x1F
	kindAck      = 0x00
	kindRNR      = 0x20
	kindNAK      = 0x60
)

// IsAck reports whether s is an ACK.
func (s Syndrome) IsAck() bool { return s&syndromeKind == kindAck }

// IsRNR reports whether s is an RNR NAK; Code is then the delay.
func (s Syndrome) IsRNR() bool { return s&syndromeKind == kindRNR }

// IsNAK reports whether s is a NAK for an error, even if its code is not known.
func (s Syndrome) IsNAK() bool { return s&syndromeKind == kindNAK }

// Code returns the lower five bits: credit code, RNR delay code or NAK code.
func (s Syndrome) Code() uint8 { return uint8(s & syndromeCode) }

// RNRNak returns the RNR NAK with the 5-bit code of a delay.
func RNRNak(code uint8) Syndrome { return kindRNR | Syndrome(code&syndromeCode) }

// AckCredits returns the ACK that grants n receive credits, or the largest smaller number that has a code.
func AckCredits(n int) Syndrome {
	return Syndrome(max(sort.SearchInts(credits[:], n+1)-1, 0))
}

// Credits returns the number of receive credits that an ACK grants. ok is false if s is not an ACK, or its responder
// does not count credits.
func (s Syndrome) Credits() (n int, ok bool) {
	if int(s) >= len(credits) {
		return 0, false
	}
	return credits[s], true
}

// credits has the number for each credit code (IBTA 9.7.7.2).
var credits = [31]int{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
	1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768}

// String describes the syndrome in the terms of the IBTA.
func (s Syndrome) String() string {
	if n, ok := s.Credits(); ok {
		return fmt.Sprintf("ACK, %d credits", n)
	}
	switch {
	case s == AckNoCredits:
		return "ACK"
	case s.IsRNR():
		return fmt.Sprintf("RNR NAK, %g ms", float64(RNRDelay(s.Code()))/1e6)
	case s.IsNAK() && int(s.Code()) < len(nakText):
		return "NAK, " + nakText[s.Code()]
	}
	return fmt.Sprintf("Syndrome(%#02x)", uint8(s))
}

var nakText = [...]string{"PSN sequence error", "invalid request", "remote access error", "remote operational error",
	"invalid RD request"}

// RNRDelay returns the delay in nanoseconds of a 5-bit RNR timer code (IBTA 9.7.5.2.8). rdma_rxe has the same values,
// except 61.41 ms for code 25.
func RNRDelay(code uint8) int64 { return rnrDelays10us[code&syndromeCode] * 10_000 }

// rnrDelays10us has the delays in units of 10 us.
var rnrDelays10us = [32]int64{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// AckTimeout returns the local ACK timeout in nanoseconds of a 5-bit code: 4.096 us * 2^code, or 0 for code 0, no
// timeout (IBTA 9.7.6.1.3).
func AckTimeout(code uint8) int64 {
	if code&syndromeCode == 0 {
		return 0
	}
	return 4096 << (code & syndromeCode)
}
