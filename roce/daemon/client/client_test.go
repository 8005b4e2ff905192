package client

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/link/udp"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
)

// daemon is a server in this process, on a device of its own.
type daemon struct {
	socket string
	dev    roce.Device
	server *server.Server
	stop   func()
}

func newDaemon(t testing.TB, o server.Options) *daemon {
	t.Helper()
	l, err := udp.Open([]netip.Addr{linktest.Loopback()}, udp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := roce.Open(wrap.Seal(wrap.Loopback(l)), roce.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New([]roce.Device{dev}, o)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{socket: filepath.Join(t.TempDir(), "socket"), dev: dev, server: s}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: d.socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	d.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		dev.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		d.stop = func() {}
	}
	t.Cleanup(func() { d.stop() })
	return d
}

// tenant is a client with the objects that a QP needs.
type tenant struct {
	testing.TB
	dev *Device
	pd  ib.PD
	cq  ib.CQ
	buf []byte
	mr  ib.MR
	qp  ib.QP
}

func (d *daemon) newTenant(t testing.TB, size int) *tenant {
	t.Helper()
	n := &tenant{TB: t}
	var err error
	n.dev, err = Dial(t.Context(), Options{Socket: d.socket})
	n.must(err)
	t.Cleanup(func() { n.dev.Close() })
	n.pd, err = n.dev.AllocPD()
	n.must(err)
	n.cq, err = n.dev.CreateCQ(ib.CQInit{Entries: 64})
	n.must(err)
	n.buf, err = Alloc(size)
	n.must(err)
	n.mr, err = n.pd.RegMR(ib.MRInit{Buf: n.buf, Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead})
	n.must(err)
	n.qp, err = n.pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: n.cq, RecvCQ: n.cq,
		Cap: ib.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	n.must(err)
	return n
}

func (n *tenant) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *tenant) sge() []ib.SGE {
	return []ib.SGE{n.mr.SGE(0, n.mr.Len())}
}

func connect(a, b *tenant) {
	for _, p := range [][2]*tenant{{a, b}, {b, a}} {
		own, peer := p[0], p[1]
		gids, err := peer.dev.GIDs(1)
		own.must(err)
		attr := ib.QPAttr{PathMTU: ib.MTU4096, DestQPN: peer.qp.Num(), MaxRdAtomic: 4, MaxDestRdAtomic: 4, Timeout: 19,
			RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
			AH: ib.AHAttr{DGID: gids[0].GID, Port: 1}, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead}
		own.must(ib.ModifyTo(own.qp, attr, ib.StateInit, ib.StateRTR, ib.StateRTS))
	}
}

// wait returns the next completion.
func (n *tenant) wait() ib.WC {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 30*time.Second)
	defer cancel()
	var wc [1]ib.WC
	_, err := n.cq.Wait(ctx, wc[:])
	n.must(err)
	return wc[0]
}

// TestTwoClients has two clients of a daemon SEND, WRITE and READ, waiting for events.
func TestTwoClients(t *testing.T) {
	d := newDaemon(t, server.Options{})
	a, b := d.newTenant(t, 1<<16), d.newTenant(t, 1<<16)
	connect(a, b)
	for i := range a.buf {
		a.buf[i] = byte(i * 7)
	}
	_, err := b.qp.PostRecv([]ib.RecvWR{{ID: 1, SGL: b.sge()}})
	b.must(err)
	_, err = a.qp.PostSend([]ib.SendWR{{ID: 2, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: a.sge()}})
	a.must(err)
	for _, wc := range []ib.WC{a.wait(), b.wait()} {
		if err := wc.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.buf, b.buf) {
		t.Error("what was sent is not what was received")
	}
	for _, op := range []ib.WROpcode{ib.WRWrite, ib.WRRead} {
		clear(b.buf)
		if op == ib.WRRead {
			a.buf, b.buf = b.buf, a.buf // in the other direction the zeros must arrive
		}
		_, err = a.qp.PostSend([]ib.SendWR{{Opcode: op, Flags: ib.SendSignaled, SGL: a.sge(), RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey()}})
		a.must(err)
		if wc := a.wait(); wc.Err() != nil {
			t.Fatalf("%v: %v", op, wc.Err())
		}
		if !bytes.Equal(a.buf, b.buf) {
			t.Errorf("%v: the two ends differ", op)
		}
	}
}

// TestDaemonGone checks that waits, polls and requests fail with ErrGone after the daemon has ended.
func TestDaemonGone(t *testing.T) {
	d := newDaemon(t, server.Options{})
	a := d.newTenant(t, 4096)
	ch, err := a.dev.CreateChannel()
	a.must(err)
	waited := make(chan error, 3)
	go func() { _, err := ch.Wait(context.Background()); waited <- err }()
	go func() { _, err := ib.WaitOne(context.Background(), a.cq); waited <- err }()
	go func() { _, err := a.dev.NextEvent(context.Background()); waited <- err }()
	d.stop()
	for range cap(waited) {
		if err := <-waited; !errors.Is(err, ErrGone) {
			t.Errorf("who waits hears %v, want %v", err, ErrGone)
		}
	}
	_, poll := a.cq.Poll(make([]ib.WC, 1))
	_, post := a.qp.PostSend(nil)
	_, alloc := a.dev.AllocPD()
	for i, err := range []error{poll, post, alloc} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("verb %d: %v, want %v", i, err, ErrGone)
		}
	}
	if err := errors.Join(a.qp.Close(), a.cq.Close(), a.dev.Close()); err != nil {
		t.Errorf("closing what is gone: %v", err)
	}
}

// TestSRQLimitAtOnce: the event of an SRQ that is below its limit from the beginning names the SRQ.
func TestSRQLimitAtOnce(t *testing.T) {
	n := newDaemon(t, server.Options{}).newTenant(t, 4096)
	for range 100 {
		srq, err := n.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1, Limit: 2}})
		n.must(err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		e, err := n.dev.NextEvent(ctx)
		cancel()
		n.must(err)
		if e.Type != ib.EventSRQLimit || e.SRQ != srq {
			t.Fatalf("got event %v of SRQ %v, want %v of the new one", e.Type, e.SRQ, ib.EventSRQLimit)
		}
		n.must(srq.Close())
	}
	_, err := n.pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1, Limit: 5}})
	var refused *ib.AttrError
	if !errors.As(err, &refused) || refused.Attr != "Limit" {
		t.Errorf("a limit above the size: got %v, want a refusal of Limit", err)
	}
}
