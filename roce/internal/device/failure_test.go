package device_test

import (
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/mr/mrtest"
	"github.com/goroce/goroce/roce/internal/device"
)

// failures has ways to fail, and what each end says then. A is the one whose request fails; parts of sentences stand
// for the rest. Empty: the end knows of nothing.
var failures = []struct {
	name   string
	status ib.WCStatus
	change func(*ib.QPAttr) // of both QPs
	do     func(w *world)
	a      string // why A's QP has failed
	b      string // what B's QP has refused
}{
	{"wrong key", ib.WCRemAccessErr, nil, func(w *world) { w.write(0, 8, func(wr *ib.SendWR) { wr.RKey ^= 0x77 }) },
		"RDMA WRITE: the peer does not allow the access",
		"RDMA WRITE was refused: no region or memory window has the key"},
	{"key deregistered", ib.WCRemAccessErr, nil, func(w *world) {
		key, addr := w.b.mr.RKey(), w.b.mr.Addr()
		must(w.t, w.b.mr.Close())
		w.now += 2e9
		w.settle()
		w.write(0, 8, func(wr *ib.SendWR) { wr.RKey, wr.RemoteAddr = key, addr })
	}, "does not allow the access", "was deregistered by the application 2s before"},
	{"key invalidated", ib.WCRemAccessErr, nil, func(w *world) {
		w.b.register(w.t, ib.LocalWrite|ib.RemoteWrite|ib.RemoteInvalidate)
		w.recv(w.b, ib.RecvWR{})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSendInv, InvalidateKey: w.b.mr.RKey()})
		w.poll(w.a)
		w.write(0, 8, nil)
	}, "does not allow the access", "was invalidated by the peer of QP"},
	{"right missing", ib.WCRemAccessErr, nil, func(w *world) {
		w.b.register(w.t, ib.LocalWrite|ib.RemoteRead)
		w.write(0, 8, nil)
	}, "does not allow the access", "grants local write, remote read, not remote write"},
	{"58 bytes too far", ib.WCRemAccessErr, nil, func(w *world) { w.write(4096-6, 64, nil) },
		"does not allow the access", "go 58 bytes beyond the end of region"},
	{"before the region", ib.WCRemAccessErr, nil, func(w *world) {
		w.write(0, 8, func(wr *ib.SendWR) { wr.RemoteAddr -= 16 })
	}, "does not allow the access", "begin 16 bytes before region"},
	{"another protection domain", ib.WCRemAccessErr, nil, func(w *world) {
		pd, err := w.b.dev.AllocPD()
		must(w.t, err)
		w.b.mr, err = pd.RegMR(ib.MRInit{Buf: w.b.buf, Access: ib.LocalWrite | ib.RemoteWrite})
		must(w.t, err)
		w.write(0, 8, nil)
	}, "does not allow the access", "belongs to another protection domain than the QP"},
	{"QP without the right", ib.WCRemInvReqErr, func(a *ib.QPAttr) { a.Access = ib.RemoteRead },
		func(w *world) { w.write(0, 8, nil) },
		"the peer calls the request invalid", "the QP's access flags allow remote read, not remote write"},
	{"more READs than granted", ib.WCRemInvReqErr, func(a *ib.QPAttr) { a.MaxDestRdAtomic = 0 }, func(w *world) {
		w.send(w.a, ib.SendWR{Opcode: ib.WRRead, SGL: w.a.sge(0, 8), RemoteAddr: w.b.mr.Addr(), RKey: w.b.mr.RKey()})
	}, "the peer calls the request invalid", "answers 0 READs and atomics at a time"},
	{"message longer than the receive", ib.WCRemInvReqErr, nil, func(w *world) {
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 10)})
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 100)})
	}, "SEND: the peer calls the request invalid", "at least 100 bytes, its receive has room for 10"},
	{"receive in memory that is gone", ib.WCRemOpErr, nil, func(w *world) {
		w.recv(w.b, ib.RecvWR{SGL: w.b.sge(0, 10)})
		must(w.t, w.b.mr.Close())
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10)})
	}, "the peer could not carry the request out", "deregistered by the application"},
	{"no receive", ib.WCRNRRetryExcErr, func(a *ib.QPAttr) { a.RNRRetry = 2 }, func(w *world) {
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10)})
	}, "the peer had no receive posted, 3 times", "the peer was told to wait 3 times"},
	{"process has unmapped the memory", ib.WCRemAccessErr, nil, func(w *world) {
		m, err := w.b.pd.(*device.PD).RegMemory(&dyingMemory{Memory: &mrtest.Memory{B: w.b.buf}}, 0x1000,
			ib.LocalWrite|ib.RemoteWrite)
		must(w.t, err)
		w.b.mr = m
		w.write(0, 8, nil)
	}, "does not allow the access", "its process has unmapped it or has ended"},
	{"silence", ib.WCRetryExcErr, func(a *ib.QPAttr) { a.RetryCnt = 2 }, func(w *world) {
		must(w.t, w.b.qp.Close())
		w.write(0, 8, nil)
	}, "was sent 3 times, and nothing came back", ""},
	{"port closed", ib.WCRetryExcErr, func(a *ib.QPAttr) { a.RetryCnt = 0 }, func(w *world) {
		must(w.t, w.b.qp.Close())
		w.a.dev.Unreachable(gidB, 111)
		w.write(0, 8, nil)
	}, "the peer's UDP port 4791 is closed", ""},
	{"own key", ib.WCLocProtErr, nil, func(w *world) {
		w.write(0, 8, func(wr *ib.SendWR) { wr.SGL[0].LKey ^= 0x55 })
	}, "RDMA WRITE: no region or memory window has the key", ""},
	{"own memory without the right", ib.WCLocProtErr, nil, func(w *world) {
		remote := w.b.mr
		w.a.register(w.t, 0)
		w.send(w.a, ib.SendWR{Opcode: ib.WRRead, SGL: w.a.sge(0, 8), RemoteAddr: remote.Addr(), RKey: remote.RKey()})
	}, "grants nothing, not local write", ""},
	{"no READs", ib.WCLocQPOpErr, func(a *ib.QPAttr) { a.MaxRdAtomic = 0 }, func(w *world) {
		w.send(w.a, ib.SendWR{Opcode: ib.WRRead, SGL: w.a.sge(0, 8), RemoteAddr: w.b.mr.Addr(), RKey: w.b.mr.RKey()})
	}, "MaxRdAtomic is 0", ""},
}

// write posts a WRITE of A to B's memory, which change may spoil.
func (w *world) write(off, n int, change func(*ib.SendWR)) {
	w.t.Helper()
	wr := ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, n), RemoteAddr: w.b.mr.Addr() + uint64(off),
		RKey: w.b.mr.RKey()}
	if change != nil {
		change(&wr)
	}
	w.send(w.a, wr)
}

// register gives h another region, with these rights.
func (h *host) register(t testing.TB, access ib.Access) {
	t.Helper()
	var err error
	h.mr, err = h.pd.RegMR(ib.MRInit{Buf: h.buf, Access: access})
	must(t, err)
}

// TestFailure: both ends of a connection say why it has failed, in a sentence; completions have the code.
func TestFailure(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t, 1, 4096, plain)
			w.connect(1024, f.change)
			f.do(w)
			wc := w.poll(w.a)
			if wc.Status != f.status {
				t.Fatalf("got status %v, want %v", wc.Status, f.status)
			}
			failed, _, err := w.a.qp.Failure()
			must(t, err)
			if text := failed.Cause.String(); !strings.Contains(text, f.a) {
				t.Errorf("got of A %q, want %q", text, f.a)
			}
			if got := ib.ReasonOf(wc.VendorErr); got != failed.Cause.Reason || got == ib.ReasonNone {
				t.Errorf("got vendor error %#x, want that of %v", wc.VendorErr, failed.Cause.Reason)
			}
			if err := wc.Err().Error(); !strings.Contains(err, failed.Cause.Reason.String()) {
				t.Errorf("got error %q, want the reason in it", err)
			}
			if f.b == "" {
				return
			}
			_, refused, err := w.b.qp.Failure()
			must(t, err)
			if text := refused.Cause.String(); !strings.Contains(text, f.b) {
				t.Errorf("got of B %q, want %q", text, f.b)
			}
			t.Logf("A: %v\nB: %v", failed.Cause, refused.Cause)
		})
	}
}

// TestFlushedSayWhy: requests that are flushed have the code of what has ended the connection, at both ends.
func TestFlushedSayWhy(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	w.connect(1024, nil)
	w.recv(w.b, ib.RecvWR{ID: 7, SGL: w.b.sge(0, 8)})
	w.write(4095, 2, nil)
	w.write(0, 1, nil)
	for _, c := range []struct {
		h      *host
		reason ib.Reason
	}{{w.a, ib.ReasonPeerAccess}, {w.a, ib.ReasonPeerAccess}, {w.b, ib.ReasonBounds}} {
		if got := ib.ReasonOf(w.poll(c.h).VendorErr); got != c.reason {
			t.Errorf("got %v, want %v", got, c.reason)
		}
	}
	w.modify(w.a.qp, ib.QPAttr{State: ib.StateReset}, ib.AttrState)
	w.modify(w.a.qp, ib.QPAttr{State: ib.StateErr}, ib.AttrState)
	if failed, _, _ := w.a.qp.Failure(); failed.Cause.Reason != ib.ReasonModified {
		t.Errorf("got %v, want %v", failed.Cause, ib.ReasonModified)
	}
}

// TestCQFull: a QP that loses a completion says so.
func TestCQFull(t *testing.T) {
	w := newWorld(t, 1, 4096, plain)
	full := *w.a
	var err error
	full.cq, err = w.a.dev.CreateCQ(ib.CQInit{Entries: 1})
	must(t, err)
	w.a = &full
	w.connect(1024, nil)
	for range 3 {
		w.write(0, 1, nil)
	}
	w.settle()
	for w.advance() {
	}
	if failed, _, _ := w.a.qp.Failure(); failed.Cause.Reason != ib.ReasonCQOverrun {
		t.Errorf("got %v, want %v", failed.Cause, ib.ReasonCQOverrun)
	}
}
