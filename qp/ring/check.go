package ring

import (
	"fmt"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// rule says what a request with a send opcode may have.
type rule struct {
	known   bool
	inline  bool   // the payload may be inline
	minLen  uint64 // bytes of the SGL or inline payload
	maxLen  uint64
	aligned bool // RemoteAddr is a multiple of 8 (IBTA 9.4.5)
	noSGL   bool // has no local data
}

var rules = [...]rule{
	ib.WRWrite:    {known: true, inline: true, maxLen: MaxMessage},
	ib.WRWriteImm: {known: true, inline: true, maxLen: MaxMessage},
	ib.WRSend:     {known: true, inline: true, maxLen: MaxMessage},
	ib.WRSendImm:  {known: true, inline: true, maxLen: MaxMessage},
	ib.WRSendInv:  {known: true, inline: true, maxLen: MaxMessage},
	ib.WRRead:     {known: true, maxLen: MaxMessage},
	// A result buffer longer than 8 bytes is accepted here, but the request fails when it begins (sendWQE.resolve).
	// rdma_rxe fills its first 8 bytes.
	ib.WRCompareSwap: {known: true, minLen: 8, maxLen: MaxMessage, aligned: true},
	ib.WRFetchAdd:    {known: true, minLen: 8, maxLen: MaxMessage, aligned: true},
	ib.WRAtomicWrite: {known: true, inline: true, minLen: 8, maxLen: 8, aligned: true},
	ib.WRLocalInv:    {known: true, noSGL: true},
	ib.WRBindMW:      {known: true, noSGL: true},
	ib.WRFlush:       {known: true, noSGL: true},
}

const sendFlags = ib.SendFence | ib.SendSignaled | ib.SendSolicited | ib.SendInline

// InvalidError is what Pop says of a request that is invalid in every state of the QP. The request
// completes with Status.
type InvalidError struct {
	Status ib.WCStatus
	Err    error
}

func (e *InvalidError) Error() string { return e.Err.Error() }
func (e *InvalidError) Unwrap() error { return e.Err }

// Status returns the status with which a request completes for which Pop has returned err:
// WCSuccess unless it is an InvalidError.
func Status(err error) ib.WCStatus {
	if invalid, ok := err.(*InvalidError); ok {
		return invalid.Status
	}
	return ib.WCSuccess
}

// ordinaryOps are the requests with payload of any length, at any address.
const ordinaryOps = 1<<ib.WRWrite | 1<<ib.WRWriteImm | 1<<ib.WRSend | 1<<ib.WRSendImm | 1<<ib.WRSendInv | 1<<ib.WRRead

// ordinary reports whether wr is a valid request of the kind that most are, with one SGE, which takes a few
// comparisons. Others need the long way, and may be valid, too.
func (q *Send) ordinary(wr *ib.SendWR) bool {
	return len(wr.SGL) == 1 && q.maxSGE >= 1 && len(wr.Inline) == 0 && uint64(wr.SGL[0].Length) <= MaxMessage &&
		wr.Opcode < 32 && 1<<wr.Opcode&ordinaryOps != 0 && wr.Flags&^(sendFlags&^ib.SendInline) == 0 &&
		wr.RemoteQPN <= ib.QPNMask && wr.RemoteSRQ <= maxSRQNum
}

// check returns an error if wr is invalid in every state of the QP. Push checks the caller's request.
func (q *Send) check(wr *ib.SendWR) error {
	if q.ordinary(wr) {
		return nil
	}
	if err := q.checkForm(wr); err != nil {
		return err
	}
	if err := checkLength(wr); err != nil {
		return err
	}
	if rules[wr.Opcode].aligned && wr.RemoteAddr%8 != 0 {
		return refuse("post send", "RemoteAddr", fmt.Sprintf("%#x", wr.RemoteAddr),
			"multiples of 8 for atomic operations")
	}
	return nil
}

// checkCopy is check for the copy of a request that a hostile client may have written. The alignment of
// atomics is left to the responder (IBTA 9.7.4.1.6), whose answer the request completes with.
func (q *Send) checkCopy(wr *ib.SendWR) error {
	if q.ordinary(wr) {
		return nil
	}
	if err := q.checkForm(wr); err != nil {
		return &InvalidError{ib.WCLocQPOpErr, err}
	}
	if err := checkLength(wr); err != nil {
		return &InvalidError{ib.WCLocLenErr, err}
	}
	return nil
}

// checkForm checks all but the length of the payload.
func (q *Send) checkForm(wr *ib.SendWR) error {
	if int(wr.Opcode) >= len(rules) || !rules[wr.Opcode].known {
		return refuse("post send", "Opcode", wr.Opcode, "the WR constants of package ib")
	}
	r := &rules[wr.Opcode]
	if wr.Flags&^sendFlags != 0 {
		return refuse("post send", "Flags", wr.Flags, "the Send flags of package ib")
	}
	if wr.Flags&ib.SendInline != 0 {
		if err := q.checkInline(wr, r); err != nil {
			return err
		}
	} else {
		if n := len(wr.Inline); n != 0 {
			return refuse("post send", "Inline", fmt.Sprintf("%d bytes", n), "none unless Flags has SendInline")
		}
		if len(wr.SGL) > int(q.maxSGE) {
			return refuse("post send", "SGL", fmt.Sprintf("%d entries", len(wr.SGL)),
				fmt.Sprintf("at most %d (QPCap.MaxSendSGE)", q.maxSGE))
		}
	}
	if r.noSGL && len(wr.SGL) > 0 {
		return refuse("post send", "SGL", fmt.Sprintf("%d entries", len(wr.SGL)), fmt.Sprintf("none for %v", wr.Opcode))
	}
	return checkNames(wr)
}

// checkLength checks the length of a request's payload.
func checkLength(wr *ib.SendWR) error {
	length, r := uint64(len(wr.Inline)), &rules[wr.Opcode]
	if wr.Flags&ib.SendInline == 0 {
		length = total(wr.SGL)
	}
	if length < r.minLen || length > r.maxLen {
		return refuse("post send", "length", length, fmt.Sprintf("%d to %d bytes for %v", r.minLen, r.maxLen,
			wr.Opcode))
	}
	return nil
}

// checkNames refuses values that have no encoding in a packet.
func checkNames(wr *ib.SendWR) error {
	const flushLevels = ib.FlushGlobally | ib.FlushPersistently
	switch {
	case wr.RemoteQPN > ib.QPNMask:
		return refuse("post send", "RemoteQPN", fmt.Sprintf("%#x", uint32(wr.RemoteQPN)), "24 bits")
	case wr.RemoteSRQ > maxSRQNum:
		return refuse("post send", "RemoteSRQ", fmt.Sprintf("%#x", wr.RemoteSRQ), "24 bits")
	case wr.Opcode != ib.WRFlush:
		return nil
	case wr.Flush.Level&^flushLevels != 0 || wr.Flush.Level == 0:
		return refuse("post send", "Flush.Level", uint8(wr.Flush.Level), "FlushGlobally, FlushPersistently or both")
	case wr.Flush.Extent > ib.FlushRegion:
		return refuse("post send", "Flush.Extent", uint8(wr.Flush.Extent), "FlushRange or FlushRegion")
	}
	return nil
}

// maxSRQNum is the highest number that an XRCETH can carry.
const maxSRQNum = 1<<24 - 1

// checkInline checks a request that has the inline flag.
func (q *Send) checkInline(wr *ib.SendWR, r *rule) error {
	if !r.inline {
		return refuse("post send", "Flags", "SendInline", fmt.Sprintf("no inline payload for %v", wr.Opcode))
	}
	if len(wr.SGL) != 0 {
		return refuse("post send", "SGL", fmt.Sprintf("%d entries", len(wr.SGL)),
			"none with SendInline: the payload is in Inline")
	}
	if len(wr.Inline) > int(q.maxInline) {
		return refuse("post send", "Inline", fmt.Sprintf("%d bytes", len(wr.Inline)),
			fmt.Sprintf("at most %d (QPCap.MaxInline)", q.maxInline))
	}
	return nil
}

// check returns an error if wr is invalid in every state of the QP.
func (q *Recv) check(wr *ib.RecvWR) error {
	if len(wr.SGL) > int(q.maxSGE) {
		return refuse("post receive", "SGL", fmt.Sprintf("%d entries", len(wr.SGL)),
			fmt.Sprintf("at most %d (QPCap.MaxRecvSGE)", q.maxSGE))
	}
	if n := total(wr.SGL); n > MaxMessage {
		return refuse("post receive", "length", n, fmt.Sprintf("at most %d bytes", MaxMessage))
	}
	return nil
}

// total returns the bytes of sgl. The sum of MaxSGE entries of less than 2^32 bytes
// cannot overflow.
func total(sgl []ib.SGE) uint64 {
	n := uint64(0)
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	return n
}

func refuse(op, attr string, value any, allowed string) error {
	return driver.Refuse(op, attr, value, allowed, ib.ErrInvalid)
}
