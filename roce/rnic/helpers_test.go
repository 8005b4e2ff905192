//go:build rnic && cgo

package rnic

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// patience bounds every wait of a test. The lab's guests are slow.
const patience = 60 * time.Second

// rig is an open device with the objects that every test needs. Its methods fail the test on
// errors.
type rig struct {
	*testing.T
	ib.Device
	ctx context.Context
	pd  ib.PD
	ch  ib.Channel
	cq  ib.CQ // for sends and receives, with channel ch
	gid ib.GIDEntry
}

// openRig opens the device that the environment names. Package tests/rxe runs
// these tests in its guests, on rxe0.
func openRig(t *testing.T) *rig {
	t.Helper()
	name := os.Getenv("GOROCE_RNIC")
	if name == "" {
		t.Skip("skipped: needs an RDMA device, named by GOROCE_RNIC (go test ./tests/rxe does so, in its guests)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	dev, err := Open(name)
	r := &rig{T: t, Device: dev, ctx: ctx}
	r.must(err)
	t.Cleanup(func() { r.must(dev.Close()) })
	r.pd = try(dev.AllocPD())(r)
	r.ch = try(dev.CreateChannel())(r)
	r.cq = r.newCQ(64)
	for _, row := range try(dev.GIDs(1))(r) {
		if row.GID.Is4() {
			r.gid = row
		}
	}
	return r
}

// in returns the rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	c := *r
	c.T = t
	return &c
}

// try takes a call's results. The function that it returns gives the value, or fails the test.
func try[T any](v T, err error) func(*rig) T {
	return func(r *rig) T {
		r.Helper()
		r.must(err)
		return v
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) newCQ(entries int) ib.CQ {
	r.Helper()
	return try(r.CreateCQ(ib.CQInit{Entries: entries, Channel: r.ch}))(r)
}

// register registers n bytes with all access rights.
func (r *rig) register(n int) (ib.MR, []byte) {
	r.Helper()
	buf := make([]byte, n)
	mr := try(r.pd.RegMR(ib.MRInit{Buf: buf, Access: allRights}))(r)
	return mr, buf
}

const allRights = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.BindWindows

var defaultCap = ib.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInline: 64}

// newQP creates a QP on the rig's CQ.
func (r *rig) newQP(typ ib.QPType, change ...func(*ib.QPInit)) ib.QP {
	r.Helper()
	init := ib.QPInit{Type: typ, SendCQ: r.cq, RecvCQ: r.cq, Cap: defaultCap}
	for _, f := range change {
		f(&init)
	}
	return try(r.pd.CreateQP(init))(r)
}

const (
	firstPSN = ib.PSN(0xFFFFF0) // wraps soon
	testQKey = 0x11111111
)

// ready takes a QP to RTS, connected to peer.
func (r *rig) ready(q ib.QP, peer ib.QPN) {
	r.Helper()
	r.toInit(q)
	attr := ib.QPAttr{AH: r.here(), PathMTU: ib.MTU1024, DestQPN: peer, RQPSN: firstPSN, MaxDestRdAtomic: 4,
		MinRNRTimer: 1, SQPSN: firstPSN, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4}
	r.must(ib.ModifyTo(q, attr, ib.StateRTR, ib.StateRTS))
}

func (r *rig) toInit(q ib.QP) {
	r.Helper()
	attr := ib.QPAttr{State: ib.StateInit, Port: 1, QKey: testQKey, Access: ib.RemoteWrite | ib.RemoteRead |
		ib.RemoteAtomic}
	mask := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort
	if q.Type() == ib.UD {
		mask |= ib.AttrQKey
	} else {
		mask |= ib.AttrAccess
	}
	r.must(q.Modify(attr, mask))
}

// here returns the address vector of the device itself.
func (r *rig) here() ib.AHAttr {
	return ib.AHAttr{DGID: r.gid.GID, SGIDIndex: r.gid.Index, Port: 1, TrafficClass: 32}
}

// newPair creates two QPs that are connected to each other.
func (r *rig) newPair(typ ib.QPType, change ...func(*ib.QPInit)) (a, b ib.QP) {
	r.Helper()
	a, b = r.newQP(typ, change...), r.newQP(typ, change...)
	r.ready(a, b.Num())
	r.ready(b, a.Num())
	return a, b
}

func (r *rig) send(q ib.QP, wrs ...ib.SendWR) {
	r.Helper()
	if n, err := q.PostSend(wrs); n != len(wrs) || err != nil {
		r.Fatalf("PostSend accepted %d of %d: %v", n, len(wrs), err)
	}
}

func (r *rig) recv(q interface {
	PostRecv([]ib.RecvWR) (int, error)
}, wrs ...ib.RecvWR) {
	r.Helper()
	if n, err := q.PostRecv(wrs); n != len(wrs) || err != nil {
		r.Fatalf("PostRecv accepted %d of %d: %v", n, len(wrs), err)
	}
}

// next waits for a completion, by events.
func (r *rig) next(cq ib.CQ) ib.WC {
	r.Helper()
	var wc [1]ib.WC
	for armed := false; ; armed = true {
		if try(cq.Poll(wc[:]))(r) == 1 {
			return wc[0]
		}
		if armed {
			if got := try(r.ch.Wait(r.ctx))(r); got != cq {
				r.Fatalf("an event of another CQ: %v", got)
			}
		}
		r.must(cq.Arm(false))
	}
}

// want waits for the completion of request id, which must succeed.
func (r *rig) want(id uint64, op ib.WCOpcode) ib.WC {
	r.Helper()
	wc := r.next(r.cq)
	if wc.ID != id || wc.Err() != nil || wc.Opcode != op {
		r.Fatalf("completion %+v, error %v; want request %d, %v", wc, wc.Err(), id, op)
	}
	return wc
}

// wantBoth waits for the completions of a send and of the matching receive, in either order,
// and returns the receive's.
func (r *rig) wantBoth(sent, received uint64) (wc ib.WC) {
	r.Helper()
	for range 2 {
		got := r.next(r.cq)
		if got.Err() != nil || got.ID != sent && got.ID != received {
			r.Fatalf("completion %+v, error %v; want requests %d and %d", got, got.Err(), sent, received)
		}
		if got.ID == received {
			wc = got
		}
	}
	return wc
}

// sge returns a scatter-gather entry for bytes of a region.
func sge(m ib.MR, offset, length int) ib.SGE {
	return ib.SGE{Addr: m.Addr() + uint64(offset), Length: uint32(length), LKey: m.LKey()}
}
