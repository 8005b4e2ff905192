package qp

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/qp/ring"
)

// Front is the application's end of a QP: it checks requests and writes them into the
// rings. It may be in another process than the QP. Any goroutine may post.
type Front struct {
	Num    ib.QPN
	Type   ib.QPType
	HasSRQ bool       // receives come from an SRQ
	SQ     *ring.Send // ring.NoSend for none
	RQ     *ring.Recv // ring.NoRecv for none

	// Rewrite, if set, returns the request to post in place of one that the caller posts: the same, or another that
	// completes alike. It is called by one goroutine at a time, and its result holds until the next call.
	Rewrite func(*ib.SendWR) *ib.SendWR

	state  atomic.Uint32 // ib.QPState, as of the latest SetState
	sendMu sync.Mutex
	recvMu sync.Mutex
}

// State returns the state of the latest SetState.
func (f *Front) State() ib.QPState { return ib.QPState(f.state.Load()) }

// SetState records the state of the QP, and returns the state recorded before.
func (f *Front) SetState(s ib.QPState) (before ib.QPState) {
	return ib.QPState(f.state.Swap(uint32(s)))
}

// PostSend posts requests in order. It returns how many were posted, whether the caller has to
// ring the QP's doorbell, and why the next one was refused.
func (f *Front) PostSend(wrs []ib.SendWR) (n int, ring bool, err error) {
	if s := f.State(); !CanPostSend(s) {
		return 0, false, f.refuse("post send", "QP state", s, "RTS (also SQD, SQE and ERR)", ib.ErrState)
	}
	f.sendMu.Lock()
	defer f.sendMu.Unlock()
	for n < len(wrs) {
		if err = f.pushSend(&wrs[n]); err != nil {
			break
		}
		n++
	}
	return n, f.SQ.Publish(), err
}

func (f *Front) pushSend(wr *ib.SendWR) error {
	if !SupportsSend(f.Type, wr.Opcode) {
		return f.refuse("post send", "Opcode", wr.Opcode, fmt.Sprintf("%s on a QP of type %v", SendOps(f.Type), f.Type),
			ib.ErrNotSupported)
	}
	if f.SQ.Entries() == 0 {
		return fmt.Errorf("post send on QP %#x: created with MaxSendWR 0: %w", uint32(f.Num), ib.ErrQueueFull)
	}
	if f.Rewrite != nil && len(wr.SGL) <= f.SQ.MaxSGE() {
		wr = f.Rewrite(wr)
	}
	return f.SQ.Push(wr)
}

// PostRecv posts receives. Its results are as those of PostSend.
func (f *Front) PostRecv(wrs []ib.RecvWR) (n int, ring bool, err error) {
	if s := f.State(); !CanPostRecv(s) {
		return 0, false, f.refuse("post receive", "QP state", s, "INIT and later", ib.ErrState)
	}
	if f.RQ.Entries() == 0 && len(wrs) > 0 {
		return 0, false, f.noReceiveQueue()
	}
	f.recvMu.Lock()
	defer f.recvMu.Unlock()
	for n < len(wrs) {
		if err = f.RQ.Push(&wrs[n]); err != nil {
			break
		}
		n++
	}
	return n, f.RQ.Publish(), err
}

// noReceiveQueue returns the error that tells why the QP takes no receives.
func (f *Front) noReceiveQueue() error {
	const op = "post receive"
	switch {
	case f.HasSRQ:
		return f.refuse(op, "SRQ", "in use", "posting to the SRQ that the QP was created with", ib.ErrInvalid)
	case f.Type == ib.XRCINI || f.Type == ib.XRCTGT:
		return f.refuse(op, "Type", f.Type, "posting to an XRC SRQ of the target's domain", ib.ErrInvalid)
	}
	return fmt.Errorf("%s on QP %#x: created with MaxRecvWR 0: %w", op, uint32(f.Num), ib.ErrQueueFull)
}

func (f *Front) refuse(op, attr string, value any, allowed string, err error) error {
	return driver.Refuse(fmt.Sprintf("%s on QP %#x", op, uint32(f.Num)), attr, value, allowed, err)
}
