package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/tests/require"
)

// padded is private data as the peer sees it: the whole field.
func padded(s string, n int) []byte { return append([]byte(s), make([]byte, n-len(s))...) }

// TestConnect: both ends know one another, private data came whole, and a message
// goes each way; so over RC and UC, IPv4, IPv6 and link-local addresses, to a
// listener that has the address and one for all.
func TestConnect(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		for _, tt := range []struct {
			name, host, dial string
			service          ib.QPType
		}{
			{"RC", "192.0.2.2:0", "192.0.2.2", ib.RC},
			{"UC", "192.0.2.2:0", "192.0.2.2", ib.UC},
			{"wildcard", ":0", "192.0.2.2", ib.RC},
			{"wildcard/IPv6", "[::]:0", "[2001:db8::2]", ib.RC},
			{"IPv6", "[2001:db8::2]:0", "[2001:db8::2]", ib.RC},
			{"link-local", "[fe80::2%eth0]:0", "[fe80::2%eth0]", ib.RC},
			{"mapped", "0.0.0.0:0", "[::ffff:192.0.2.2]", ib.RC},
		} {
			t.Log(tt.name)
			var inbox memory
			prepare := func(c *rdmacm.Conn) error {
				inbox = register(t, c.PD(), 16)
				_, err := c.QP().PostRecv([]ib.RecvWR{{ID: 7, SGL: inbox.sgl()}})
				return err
			}
			l := listen(t, b, tt.host, rdmacm.ListenConfig{Config: rdmacm.Config{Service: tt.service,
				PrivateData: []byte("pong"), Prepare: prepare}})
			_, port, _ := net.SplitHostPort(l.Addr().String())
			c, s := dialTo(t, a, l, tt.dial+":"+port, rdmacm.Config{Service: tt.service, PrivateData: []byte("ping"),
				Cap: ib.QPCap{MaxSendWR: 1, MaxInline: 16}, SigAll: true})
			if c.LocalAddr() != s.RemoteAddr() || s.LocalAddr() != c.RemoteAddr() || c.LocalAddr().Port() < 32768 {
				t.Errorf("client %v to %v, server %v to %v; want %v to %v, from a port of 32768 or more", c.LocalAddr(),
					c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr(), s.RemoteAddr(), c.RemoteAddr())
			}
			if a := c.QPAttr(); (a.MaxDestRdAtomic == 0) != (tt.service == ib.UC) ||
				(a.MaxRdAtomic == 0) != (tt.service == ib.UC) {
				t.Errorf("READs and atomics of a connection of type %v: %+v, want none: %v", tt.service, a,
					tt.service == ib.UC)
			}
			if diff := cmp.Diff(padded("ping", 56), s.PrivateData()); diff != "" {
				t.Error("the server's view of private data:", diff)
			}
			if diff := cmp.Diff(padded("pong", 196), c.PrivateData()); diff != "" {
				t.Error("the client's view of private data:", diff)
			}
			if _, err := c.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline,
				Inline: []byte("hello")}}); err != nil {
				t.Fatal(err)
			}
			want(t, poll(t, c.SendCQ()))
			if wc := want(t, poll(t, s.RecvCQ())); wc.ID != 7 || !bytes.Equal(inbox.buf[:wc.ByteLen], []byte("hello")) {
				t.Errorf("received %+v, %q; want ID 7 and \"hello\"", wc, inbox.buf[:wc.ByteLen])
			}
			if err := c.Disconnect(patience(t)); err != nil {
				t.Error(err)
			}
			<-s.Done()
			if err := s.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
				t.Errorf("the server's end: %v, want %v", err, rdmacm.ErrDisconnected)
			}
		}
	})
}

// TestAgreement: what both ends bring becomes what both can, and their QPs have it.
func TestAgreement(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		c, s := connect(t, a, b,
			rdmacm.Config{ResponderResources: 4, InitiatorDepth: 9, RetryCount: 3, RNRRetry: 2, AckTimeout: 15,
				MinRNRTimer: 5, PathMTU: ib.MTU512, Access: ib.RemoteRead},
			rdmacm.Config{ResponderResources: 6, InitiatorDepth: -1, RetryCount: 1, RNRRetry: 4, AckTimeout: 9})
		wantC := ib.QPAttr{State: ib.StateRTS, DestQPN: s.QP().Num(), RQPSN: s.QPAttr().SQPSN, SQPSN: s.QPAttr().RQPSN,
			PathMTU: ib.MTU512, MaxDestRdAtomic: 0, MaxRdAtomic: 6, MinRNRTimer: 5, Timeout: 15, RetryCnt: 3,
			RNRRetry: 4}
		wantS := ib.QPAttr{State: ib.StateRTS, DestQPN: c.QP().Num(), RQPSN: c.QPAttr().SQPSN, SQPSN: c.QPAttr().RQPSN,
			PathMTU: ib.MTU512, MaxDestRdAtomic: 6, MaxRdAtomic: 0, MinRNRTimer: 12, Timeout: 15, RetryCnt: 3,
			RNRRetry: 2}
		for _, e := range []struct {
			name   string
			conn   *rdmacm.Conn
			peer   netip.Addr
			want   ib.QPAttr
			access ib.Access
		}{{"client", c, b.addr, wantC, ib.RemoteRead}, {"server", s, a.addr, wantS, 0}} {
			q, err := e.conn.QP().Query()
			if err != nil {
				t.Fatal(err)
			}
			if q.AH.DGID != ib.GIDFromAddr(e.peer) || q.Access != e.access || e.conn.QP().Type() != ib.RC {
				t.Errorf("%s: a QP of type %v to %v with access %#x, want RC, %v, %#x", e.name, e.conn.QP().Type(),
					q.AH.DGID.Addr(), uint32(q.Access), e.peer, uint32(e.access))
			}
			e.want.AH = q.AH
			if diff := cmp.Diff(e.want, e.conn.QPAttr()); diff != "" {
				t.Errorf("%s (-want +Conn.QPAttr): %s", e.name, diff)
			}
			got := ib.QPAttr{State: q.State, AH: q.AH, PathMTU: q.PathMTU, DestQPN: q.DestQPN, RQPSN: q.RQPSN,
				SQPSN: q.SQPSN, MaxRdAtomic: q.MaxRdAtomic, MaxDestRdAtomic: q.MaxDestRdAtomic,
				MinRNRTimer: q.MinRNRTimer,
				Timeout:     q.Timeout, RetryCnt: q.RetryCnt, RNRRetry: q.RNRRetry}
			if diff := cmp.Diff(e.want, got); diff != "" {
				t.Errorf("%s (-want +QP.Query): %s", e.name, diff)
			}
		}
	})
}

// TestFlowLabel: Linux's choice for connections by address, the same both ways.
func TestFlowLabel(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		c, s := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
		for _, conn := range []*rdmacm.Conn{c, s} {
			q, err := conn.QP().Query()
			if err != nil {
				t.Fatal(err)
			}
			if want := (uint32(c.LocalAddr().Port())*31 + uint32(c.RemoteAddr().Port())) &
				0xFFFFF; q.AH.FlowLabel != want {
				t.Errorf("flow label %#x, want %#x", q.AH.FlowLabel, want)
			}
		}
	})
}

// TestOwnAddress: one device at both ends.
func TestOwnAddress(t *testing.T) {
	simulate(t, func(t *testing.T, a, _ *node) {
		c, s := connect(t, a, a, rdmacm.Config{}, rdmacm.Config{})
		if c.QPAttr().DestQPN != s.QP().Num() || s.QPAttr().DestQPN != c.QP().Num() {
			t.Errorf("client %+v, server %+v; want QPs %v and %v", c.QPAttr(), s.QPAttr(), s.QP().Num(), c.QP().Num())
		}
	})
}

// TestOwnObjects: QP, CQs, PD and SRQ of the caller's; they are as they were after
// Close.
func TestOwnObjects(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		pd, err := a.dev.AllocPD()
		must(t, err)
		cq, err := a.dev.CreateCQ(ib.CQInit{Entries: 16})
		must(t, err)
		srq, err := pd.CreateSRQ(ib.SRQInit{SRQAttr: ib.SRQAttr{MaxWR: 4, MaxSGE: 1}})
		must(t, err)
		qp, err := pd.CreateQP(ib.QPInit{Type: ib.RC, SendCQ: cq, RecvCQ: cq, SRQ: srq})
		must(t, err)
		for name, o := range map[string]rdmacm.Config{
			"QP":      {QP: qp, SRQ: srq},
			"CQ, SRQ": {PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq},
			"SRQ":     {SRQ: srq},
			"RecvCQ":  {RecvCQ: cq},
		} {
			c, s := connect(t, a, b, o, rdmacm.Config{Cap: ib.QPCap{MaxSendWR: 1, MaxInline: 8}, SigAll: true})
			if o.QP != nil && (c.QP() != qp || c.PD() != nil) || o.PD != nil && c.PD() != pd || o.RecvCQ != nil &&
				c.RecvCQ() != cq {
				t.Errorf("%s: the connection has others", name)
			}
			if name == "SRQ" && c.RecvCQ().Entries() < 16+4 {
				t.Errorf("a CQ of %d entries for 16 sends and an SRQ of 4, want at least 20", c.RecvCQ().Entries())
			}
			if o.SRQ != nil {
				_, err := srq.PostRecv([]ib.RecvWR{{}})
				must(t, err)
				_, err = s.QP().PostSend([]ib.SendWR{{Opcode: ib.WRSend}})
				must(t, err)
				want(t, poll(t, s.SendCQ()))
			}
			must(t, c.Close())
			if state, err := qp.Query(); o.QP != nil && (err != nil || state.State != ib.StateErr) {
				t.Errorf("%s: after Close it is in %v, %v, want %v", name, state.State, err, ib.StateErr)
			}
		}
		for _, o := range []interface{ Close() error }{qp, srq, cq, pd} {
			must(t, o.Close())
		}
	})
}

// TestPrepare: an error of it ends the attempt, at either end.
func TestPrepare(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		own := errors.New("not today")
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Config: rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
			if err := c.Disconnect(patience(t)); !errors.Is(err, ib.ErrState) {
				t.Errorf("Disconnect in Prepare: %v, want ErrState", err)
			}
			if q, err := c.QP().Query(); err != nil || q.State != ib.StateInit {
				t.Errorf("prepared in %v, %v; want %v", q.State, err, ib.StateInit)
			}
			return own
		}}})
		if _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{Prepare: func(*rdmacm.Conn) error {
			return own
		}}); !errors.Is(err, own) {
			t.Errorf("Dial returned %v, want %v", err, own)
		}
		if _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{Prepare: func(c *rdmacm.Conn) error {
			return c.Close()
		}}); !errors.Is(err, ib.ErrClosed) {
			t.Errorf("Dial of what Prepare closed: %v, want %v", err, ib.ErrClosed)
		}
		accepted := make(chan error, 1)
		go func() { _, err := l.Accept(ctx); accepted <- err }()
		if _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{}); !errors.Is(err,
			&rdmacm.RejectError{Reason: ib.RejectConsumer}) {
			t.Errorf("Dial returned %v, want a consumer's reject", err)
		}
		if err := <-accepted; !errors.Is(err, own) {
			t.Errorf("Accept returned %v, want %v", err, own)
		}
	})
}

// TestNobodyThere: the host does not exist; the error says so in time.
func TestNobodyThere(t *testing.T) {
	simulate(t, func(t *testing.T, a, _ *node) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := a.cm.Dial(ctx, "192.0.2.9:7471", rdmacm.Config{})
		var timeout *rdmacm.TimeoutError
		if !errors.As(err, &timeout) || timeout.Step != "REQ" || timeout.Sent == 0 || !timeout.Timeout() ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Dial returned %#v, want a timeout at REQ, %v", err, context.DeadlineExceeded)
		}
		for _, s := range []string{"dial 192.0.2.9:7471", "REQ", "4791", fmt.Sprintf("sent %d times", timeout.Sent)} {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q, want it to say %q", err, s)
			}
		}
		require.Until(t, "nothing is left", a.cm.Idle)
	})
}

// TestCancel: a cancelled Dial tells the peer, whose request goes.
func TestCancel(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		ctx, cancel := context.WithCancel(context.Background())
		dialled := make(chan error, 1)
		go func() { _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{}); dialled <- err }()
		r, err := l.Request(patience(t))
		must(t, err)
		cancel()
		var timeout *rdmacm.TimeoutError
		if err := <-dialled; !errors.Is(err, context.Canceled) || !errors.As(err, &timeout) || timeout.Timeout() {
			t.Errorf("Dial returned %v, want %v and no timeout", err, context.Canceled)
		}
		must(t, l.Close())
		require.Until(t, "nothing is left", func() bool { return a.cm.Idle() && b.cm.Idle() })
		if _, err := r.Accept(patience(t), rdmacm.Config{}); err == nil {
			t.Error("accepted what the peer took back")
		}
		if _, err := a.cm.Dial(ctx, l.Addr().String(), rdmacm.Config{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Dial with a context that has ended: %v, want %v", err, context.Canceled)
		}
	})
}

// TestBadArguments: each error names what is wrong, and nothing is left behind.
func TestBadArguments(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		l := listen(t, b, b.at("0"), rdmacm.ListenConfig{})
		ud := newUD(t, a)
		for _, tt := range []struct {
			addr string
			o    rdmacm.Config
			says string
			is   error
		}{
			{"192.0.2.2", rdmacm.Config{}, "missing port", nil},
			{":1", rdmacm.Config{}, "missing host", nil},
			{"224.0.0.1:1", rdmacm.Config{}, "no group", ib.ErrInvalid},
			{"0.0.0.0:1", rdmacm.Config{}, "0.0.0.0", ib.ErrInvalid},
			{"", rdmacm.Config{Service: ib.UD}, "Resolve", ib.ErrInvalid},
			{"", rdmacm.Config{Service: ib.XRCINI}, "Service", ib.ErrInvalid},
			{"", rdmacm.Config{QP: ud.qp}, "a QP of type RC", ib.ErrInvalid},
			{"", rdmacm.Config{Local: addrPort("192.0.2.7:0")}, "192.0.2.7", ib.ErrInvalid},
			{"", rdmacm.Config{Local: addrPort("[2001:db8::1]:0")}, "same family", ib.ErrInvalid},
			{"", rdmacm.Config{RetryCount: 8}, "RetryCount is 8", ib.ErrInvalid},
			{"", rdmacm.Config{ResponderResources: 200}, "ResponderResources is 200", ib.ErrInvalid},
			{"", rdmacm.Config{AckTimeout: 32}, "AckTimeout is 32", ib.ErrInvalid},
			{"", rdmacm.Config{PathMTU: 1000}, "PathMTU is 1000", ib.ErrInvalid},
			{"", rdmacm.Config{PrivateData: make([]byte, 57)}, "at most 56", ib.ErrPrivateData},
			{"", rdmacm.Config{Cap: ib.QPCap{MaxSendWR: -1}}, "MaxSendWR", ib.ErrInvalid},
			{"", rdmacm.Config{Access: ib.BindWindows}, "Access", ib.ErrInvalid},
		} {
			if tt.addr == "" {
				tt.addr = l.Addr().String()
			}
			_, err := a.cm.Dial(patience(t), tt.addr, tt.o)
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.HasPrefix(err.Error(),
				"dial "+tt.addr) {
				t.Errorf("%s, %+v: error %v, want it to say %q", tt.addr, tt.o, err, tt.says)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%s: error %v, want %v", tt.addr, err, tt.is)
			}
		}
		if !a.cm.Idle() {
			t.Error("something is left")
		}
	})
}

// TestLocal: the source address and port that the caller wants; a port belongs to
// one connection.
func TestLocal(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		l := listen(t, b, ":0", rdmacm.ListenConfig{})
		to := "[2001:db8::2]:" + port(l)
		o := rdmacm.Config{Local: addrPort("[::]:1234")}
		c, s := dialTo(t, a, l, to, o)
		if want := addrPort("[2001:db8::1]:1234"); c.LocalAddr() != want || s.RemoteAddr() != want {
			t.Errorf("from %v, seen as %v; want %v", c.LocalAddr(), s.RemoteAddr(), want)
		}
		_, err := a.cm.Dial(patience(t), to, o)
		if !errors.Is(err, ib.ErrAddrInUse) || !strings.Contains(err.Error(), "1234") {
			t.Errorf("the same source port again: %v, want %v and %q", err, ib.ErrAddrInUse, "1234")
		}
		must(t, c.Close())
		dialTo(t, a, l, to, o)
	})
}

// TestServiceID: connections by service ID, without rdma_cm's header in the private
// data.
func TestServiceID(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		o := rdmacm.Config{ServiceID: 0x1000_0000_0000_0042, PrivateData: bytes.Repeat([]byte{1}, 92)}
		l := listen(t, b, ":7", rdmacm.ListenConfig{Config: o})
		_, s := dialTo(t, a, l, b.at("0"), o)
		if len(s.PrivateData()) != 92 || s.RemoteAddr() != addrPort("192.0.2.1:0") {
			t.Errorf("%d bytes of private data from %v; want 92 and %v", len(s.PrivateData()), s.RemoteAddr(),
				addrPort("192.0.2.1:0"))
		}
	})
}
