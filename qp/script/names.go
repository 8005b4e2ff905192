package script

import (
	"fmt"

	"github.com/goroce/goroce/ib"
)

// statusNames are those of ibv_wc_status, without IBV_WC_.
var statusNames = map[ib.WCStatus]string{
	ib.WCSuccess: "SUCCESS", ib.WCLocLenErr: "LOC_LEN_ERR", ib.WCLocQPOpErr: "LOC_QP_OP_ERR",
	ib.WCLocProtErr: "LOC_PROT_ERR",
	ib.WCWRFlushErr: "WR_FLUSH_ERR", ib.WCMWBindErr: "MW_BIND_ERR", ib.WCBadRespErr: "BAD_RESP_ERR",
	ib.WCLocAccessErr: "LOC_ACCESS_ERR",
	ib.WCRemInvReqErr: "REM_INV_REQ_ERR", ib.WCRemAccessErr: "REM_ACCESS_ERR", ib.WCRemOpErr: "REM_OP_ERR",
	ib.WCRetryExcErr: "RETRY_EXC_ERR", ib.WCRNRRetryExcErr: "RNR_RETRY_EXC_ERR",
}

// eventNames are those of ibv_event_type, without IBV_EVENT_.
var eventNames = map[ib.EventType]string{
	ib.EventCQErr: "CQ_ERR", ib.EventQPFatal: "QP_FATAL", ib.EventQPReqErr: "QP_REQ_ERR",
	ib.EventQPAccessErr: "QP_ACCESS_ERR", ib.EventCommEst: "COMM_EST", ib.EventSQDrained: "SQ_DRAINED",
	ib.EventSRQErr: "SRQ_ERR", ib.EventSRQLimit: "SRQ_LIMIT_REACHED", ib.EventLastWQE: "QP_LAST_WQE_REACHED",
}

// kind describes an operation in post and wc.
type kind struct {
	word string
	post ib.WROpcode
	wc   ib.WCOpcode
	recv bool
	size uint64 // of the buffer, unless the request has len
	bare bool   // has no buffer
}

var kinds = []kind{
	{word: "send", post: ib.WRSend, wc: ib.WCSend},
	{word: "write", post: ib.WRWrite, wc: ib.WCWrite},
	{word: "read", post: ib.WRRead, wc: ib.WCRead},
	{word: "cas", post: ib.WRCompareSwap, wc: ib.WCCompareSwap, size: 8},
	{word: "faa", post: ib.WRFetchAdd, wc: ib.WCFetchAdd, size: 8},
	{word: "atomic-write", post: ib.WRAtomicWrite, wc: ib.WCAtomicWrite, size: 8},
	{word: "flush", post: ib.WRFlush, wc: ib.WCFlush, bare: true},
	{word: "bind", post: ib.WRBindMW, wc: ib.WCBindMW, bare: true},
	{word: "local-inv", post: ib.WRLocalInv, wc: ib.WCLocalInv, bare: true},
	{word: "recv", wc: ib.WCRecv, recv: true},
	{word: "recv-imm", wc: ib.WCRecvImm, recv: true},
}

func findKind(word string) (kind, error) {
	for _, k := range kinds {
		if k.word == word {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("%q is no operation; doc.go lists them", word)
}

// outgoing reports whether the buffer holds data to be sent.
func (k *kind) outgoing() bool {
	return !k.recv && (k.post == ib.WRSend || k.post == ib.WRWrite || k.post == ib.WRAtomicWrite)
}

// wc is a completion and the queue that it was polled from.
type wc struct {
	ib.WC
	queue string // name of its completions
}

// String formats the completion like the step that claims it.
func (c *wc) String() string {
	op, srq := c.queue, ""
	if op != "send" && op != "recv" {
		op, srq = "recv", " "+c.queue
	}
	if c.Status != ib.WCSuccess {
		return fmt.Sprintf("wc %s %d %s%s", op, c.ID, statusNames[c.Status], srq)
	}
	for _, k := range kinds {
		if k.wc == c.Opcode && k.recv == (c.queue != "send") {
			op = k.word
		}
	}
	s := fmt.Sprintf("wc %s %d %s%s", op, c.ID, statusNames[c.Status], srq)
	if c.Flags&ib.WCGRH != 0 {
		s += fmt.Sprintf(" from=%#x", uint32(c.SrcQP))
	}
	if c.ByteLen != 0 {
		s += fmt.Sprintf(" len=%d", c.ByteLen)
	}
	if c.Flags&ib.WCWithImm != 0 {
		s += fmt.Sprintf(" imm=%#x", c.Imm)
	}
	if c.Flags&ib.WCWithInv != 0 {
		s += fmt.Sprintf(" inv=%#x", uint32(c.InvalidatedKey))
	}
	return s
}
