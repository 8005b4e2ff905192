package device_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// The tests in this file supplement the conformance suite: they test behaviour that only the
// software device has, or that only virtual time can show.

// newQP makes a QP of any type on h and takes it to RTS with the peer given.
func (w *world) newQP(h *host, init ib.QPInit) ib.QP {
	w.t.Helper()
	init.Cap = ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}
	init.SendCQ, init.RecvCQ = h.cq, h.cq
	q, err := h.pd.CreateQP(init)
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

const qkey = 0x1234

// datagramUp takes a UD QP to RTS.
func (w *world) datagramUp(q ib.QP) {
	w.t.Helper()
	w.modify(q, ib.QPAttr{State: ib.StateInit, Port: 1, QKey: qkey},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey)
	w.modify(q, ib.QPAttr{State: ib.StateRTR}, ib.AttrState)
	w.modify(q, ib.QPAttr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN)
}

// TestDatagram: a datagram arrives behind its GRH, and its completion has all that is needed
// to answer it.
func TestDatagram(t *testing.T) {
	w := newWorld(t, 1, 8192, plain)
	w.a.qp, w.b.qp = w.newQP(w.a, ib.QPInit{Type: ib.UD}), w.newQP(w.b, ib.QPInit{Type: ib.UD})
	w.datagramUp(w.a.qp)
	w.datagramUp(w.b.qp)
	ah, err := w.a.pd.CreateAH(ib.AHAttr{DGID: gidB, TrafficClass: 7})
	if err != nil {
		t.Fatal(err)
	}
	fill(w.a.buf[:100], 3)
	w.recv(w.b, ib.RecvWR{ID: 9, SGL: w.b.sge(0, 140)})
	w.send(w.a, ib.SendWR{ID: 1, Opcode: ib.WRSendImm, Imm: 77, SGL: w.a.sge(0, 100), AH: ah.Num(),
		RemoteQPN: w.b.qp.Num(), RemoteQKey: qkey})
	if wc := w.poll(w.a); wc.Status != ib.WCSuccess || wc.Opcode != ib.WCSend {
		t.Errorf("sender: %+v, want %v of %v", wc, ib.WCSuccess, ib.WCSend)
	}
	wc := w.poll(w.b)
	want := ib.WC{ID: 9, Opcode: ib.WCRecv, Flags: ib.WCGRH | ib.WCWithImm, SL: ib.SLIPv4,
		ByteLen: 140, Imm: 77, QPN: w.b.qp.Num(), SrcQP: w.a.qp.Num(), Timestamp: wc.Timestamp}
	if wc != want {
		t.Errorf("receiver: %+v, want %+v", wc, want)
	}
	if !bytes.Equal(w.b.buf[40:140], w.a.buf[:100]) {
		t.Error("the payload differs")
	}
	gids, _ := w.b.dev.GIDs(1)
	back, err := ib.AHFromWC(gids, &wc, w.b.buf)
	if want := (ib.AHAttr{DGID: gidA, Port: 1, TrafficClass: 7}); err != nil || back != want {
		t.Errorf("address of the reply: %+v, %v; want %+v", back, err, want)
	}
}

// TestMulticast: a group's datagrams reach all its members, including those on the sender's
// host, and no other QPs.
func TestMulticast(t *testing.T) {
	w := newWorld(t, 1, 8192, plain)
	group := ib.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))
	w.a.qp, w.b.qp = w.newQP(w.a, ib.QPInit{Type: ib.UD}), w.newQP(w.b, ib.QPInit{Type: ib.UD})
	w.datagramUp(w.a.qp)
	w.datagramUp(w.b.qp)
	ah, err := w.a.pd.CreateAH(ib.AHAttr{DGID: group})
	if err != nil {
		t.Fatal(err)
	}
	post := func() {
		w.send(w.a, ib.SendWR{Opcode: ib.WRSend, SGL: w.a.sge(0, 10), AH: ah.Num(), RemoteQPN: ib.QPNMulticast,
			RemoteQKey: qkey})
		if wc := w.poll(w.a); wc.Status != ib.WCSuccess {
			t.Fatalf("sender: got %v, want success", wc.Status)
		}
	}
	for _, h := range []*host{w.a, w.b} {
		w.recv(h, ib.RecvWR{ID: 5, SGL: h.sge(100, 50)})
		w.recv(h, ib.RecvWR{ID: 6, SGL: h.sge(100, 50)})
	}
	post() // no members yet
	for _, h := range []*host{w.a, w.b} {
		if err := h.qp.AttachMulticast(group); err != nil {
			t.Fatal(err)
		}
	}
	post()
	for _, h := range []*host{w.a, w.b} {
		if wc := w.poll(h); wc.ID != 5 || wc.Status != ib.WCSuccess {
			t.Errorf("member: %+v, want ID 5, %v", wc, ib.WCSuccess)
		}
	}
	if err := w.b.qp.DetachMulticast(group); err != nil {
		t.Fatal(err)
	}
	post()
	if wc := w.poll(w.a); wc.ID != 6 {
		t.Errorf("member that stayed: got completion %+v, want that of request 6", wc)
	}
	var wcs [1]ib.WC
	if n, _ := w.b.cq.Poll(wcs[:]); n != 0 {
		t.Errorf("a QP that left the group: got %+v, want no completion", wcs[0])
	}
	if err := w.b.qp.DetachMulticast(group); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("detached twice: got %v, want %v", err, ib.ErrInvalid)
	}
}

// TestPortEvents: the interface goes down and comes up.
func TestPortEvents(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	dev := w.a.dev
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		state ib.PortState
		event ib.EventType
	}{{ib.PortDown, ib.EventPortErr}, {ib.PortActive, ib.EventPortActive}} {
		dev.SetPortState(c.state)
		dev.SetPortState(c.state) // no news
		if ev, err := dev.NextEvent(ctx); err != nil || ev.Type != c.event {
			t.Errorf("event %v, %v; want %v", ev.Type, err, c.event)
		}
		if port, err := dev.QueryPort(1); err != nil || port.State != c.state {
			t.Errorf("state %v, %v; want %v", port.State, err, c.state)
		}
	}
}

// TestTimestamps: completions are stamped with the device's clock.
func TestTimestamps(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	w.connect(ib.MTU1024, nil)
	w.now = 12345
	w.recv(w.b, ib.RecvWR{})
	w.send(w.a, ib.SendWR{Opcode: ib.WRSend})
	for _, h := range []*host{w.a, w.b} {
		wc := w.poll(h)
		if now, err := h.dev.Clock(); err != nil || wc.Timestamp != 12345 || now != 12345 {
			t.Errorf("stamped %d at %d, %v; want 12345", wc.Timestamp, now, err)
		}
	}
}

// TestBusy: closing an object in use fails with an error that names its users.
func TestBusy(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	h := w.a
	xrcd, err := h.dev.AllocXRCD()
	must(t, err)
	srq, err := h.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1}})
	must(t, err)
	xsrq, err := h.pd.CreateSRQ(ib.SRQInit{Type: ib.SRQXRC, SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1}, XRCD: xrcd,
		CQ: h.cq})
	must(t, err)
	w.newQP(h, ib.QPInit{Type: ib.UC, SRQ: srq})
	w.newQP(h, ib.QPInit{Type: ib.XRCTGT, XRCD: xrcd})
	_, err = h.pd.CreateAH(ib.AHAttr{DGID: gidB})
	must(t, err)
	_, err = h.pd.AllocMW(ib.MWType1)
	must(t, err)
	for _, c := range []struct {
		close func() error
		by    string
	}{
		{h.pd.Close, "1 memory regions, 1 memory windows, 2 QPs, 2 SRQs, 1 address handles"},
		{h.cq.Close, "1 QPs, 1 SRQs"},
		{srq.Close, "1 QPs"},
		{xrcd.Close, "1 SRQs, 1 QPs"},
	} {
		if err := c.close(); !errors.Is(err, ib.ErrBusy) || !strings.Contains(err.Error(), c.by) {
			t.Errorf("error %v, want one that says %q", err, c.by)
		}
	}
	if xsrq.Num() == 0 {
		t.Error("an XRC SRQ without a number")
	}
	must(t, xsrq.Close())
	if n := h.dev.Workers(); n != 0 {
		t.Errorf("got %d workers without slow memory, want none", n)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSharedMemory: the same bytes registered twice, with rights of their own.
func TestSharedMemory(t *testing.T) {
	w := newWorld(t, 1, 64, plain)
	w.connect(ib.MTU1024, nil)
	readOnly, err := w.b.pd.RegMR(ib.MRInit{Buf: w.b.buf, Access: ib.RemoteRead})
	must(t, err)
	fill(w.a.buf, 1)
	write := ib.SendWR{Opcode: ib.WRWrite, SGL: w.a.sge(0, 64), RemoteAddr: w.b.mr.Addr(), RKey: w.b.mr.RKey()}
	w.send(w.a, write)
	if wc := w.poll(w.a); wc.Status != ib.WCSuccess || !bytes.Equal(w.a.buf, w.b.buf) {
		t.Errorf("write by the key that may: %v; want %v and the data", wc.Status, ib.WCSuccess)
	}
	w.send(w.a, ib.SendWR{Opcode: ib.WRRead, SGL: w.a.sge(0, 64), RemoteAddr: readOnly.Addr(), RKey: readOnly.RKey()})
	if wc := w.poll(w.a); wc.Status != ib.WCSuccess {
		t.Errorf("read by the other key: got %v, want success", wc.Status)
	}
	write.RKey = readOnly.RKey()
	w.send(w.a, write)
	if wc := w.poll(w.a); wc.Status != ib.WCRemAccessErr {
		t.Errorf("write by the key that may only read: got %v, want %v", wc.Status, ib.WCRemAccessErr)
	}
}

// TestMixedGroup: a handle for a group of the other family is made, as rdma_rxe does, and what is sent to it goes
// nowhere, without harm to what follows; one for a host of the other family is refused.
func TestMixedGroup(t *testing.T) {
	w := newWorld(t, 1, 8192, plain)
	w.a.qp, w.b.qp = w.newQP(w.a, ib.QPInit{Type: ib.UD}), w.newQP(w.b, ib.QPInit{Type: ib.UD})
	w.datagramUp(w.a.qp)
	w.datagramUp(w.b.qp)
	group, host := "ff0e::1", "2001:db8::1"
	if w.a.gid().Addr().Is6() {
		group, host = "224.1.2.3", "192.0.2.1"
	}
	ah := func(to ib.GID) ib.AHNum {
		h, err := w.a.pd.CreateAH(ib.AHAttr{DGID: to})
		must(t, err)
		return h.Num()
	}
	w.recv(w.b, ib.RecvWR{ID: 9, SGL: w.b.sge(0, 140)})
	for _, to := range []ib.GID{ib.GIDFromAddr(netip.MustParseAddr(group)), gidB} {
		w.send(w.a, ib.SendWR{ID: 3, Opcode: ib.WRSend, SGL: w.a.sge(0, 100), AH: ah(to), RemoteQPN: w.b.qp.Num(),
			RemoteQKey: qkey})
		if wc := w.poll(w.a); wc.Status != ib.WCSuccess {
			t.Errorf("to %v: got %v, want success", to.Addr(), wc.Status)
		}
	}
	if wc := w.poll(w.b); wc.ID != 9 || wc.Status != ib.WCSuccess {
		t.Errorf("receiver: %+v, want success", wc)
	}
	refused := ib.AHAttr{DGID: ib.GIDFromAddr(netip.MustParseAddr(host))}
	if _, err := w.a.pd.CreateAH(refused); !errors.Is(err, ib.ErrInvalid) {
		t.Errorf("a host of the other family: %v, want %v", err, ib.ErrInvalid)
	}
}
