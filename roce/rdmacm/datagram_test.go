package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// TestDatagrams: a service is found by its port, and datagrams go there and back,
// over IPv4 and IPv6.
func TestDatagrams(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		l := listen(t, b, ":7471", rdmacm.ListenConfig{Config: rdmacm.Config{Service: ib.UD}})
		for _, host := range []string{"192.0.2.2", "[2001:db8::2]"} {
			client, server := newUD(t, a), newUD(t, b)
			type answer struct {
				back ib.AHAttr
				err  error
			}
			answered := make(chan answer, 1)
			go func() {
				r, err := l.Request(ctx)
				if err != nil {
					answered <- answer{err: err}
					return
				}
				if diff := cmp.Diff(padded("who?", 180), r.PrivateData()); diff != "" || r.RemoteAddr().Port() == 0 {
					t.Error(r.RemoteAddr(), diff)
				}
				if _, err := r.Accept(ctx, rdmacm.Config{}); err == nil ||
					!strings.Contains(err.Error(), "AcceptDatagram") {
					t.Errorf("accepted as a connection: %v, want %q", err, "AcceptDatagram")
				}
				back, err := r.AcceptDatagram(server.qp.Num(), 0, []byte("me"))
				answered <- answer{back, err}
			}()
			s, err := a.cm.Resolve(ctx, host+":7471", rdmacm.Config{PrivateData: []byte("who?")})
			must(t, err)
			got := <-answered
			must(t, got.err)
			if s.QPN != server.qp.Num() || s.QKey != 0x01234567 || !bytes.Equal(s.PrivateData, padded("me", 136)) {
				t.Errorf("resolved %+v, want QP %v, Q_Key 0x01234567 and \"me\"", s, server.qp.Num())
			}
			client.send(t, s.AH, s.QPN, s.QKey, "hello")
			text, from := server.receive(t)
			if text != "hello" || from != client.qp.Num() {
				t.Errorf("received %q from %#x; want %q and %#x", text, from, "hello", client.qp.Num())
			}
			server.send(t, got.back, from, rdmacm.DefaultQKey, "and back")
			if text, _ := client.receive(t); text != "and back" {
				t.Errorf("received %q, want %q", text, "and back")
			}
		}
		if _, err := l.Accept(ctx); !errors.Is(err, ib.ErrInvalid) {
			t.Errorf("Accept of a datagram service: %v, want %v", err, ib.ErrInvalid)
		}
	})
}

// TestDatagramRefusals: nobody listens, the service refuses, nobody is there.
func TestDatagramRefusals(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		l := listen(t, b, ":7471", rdmacm.ListenConfig{Config: rdmacm.Config{Service: ib.UD}, Backlog: 1})
		listen(t, b, ":7472", rdmacm.ListenConfig{}) // of connections
		rejected := make(chan error, 1)
		ask := func(addr string) { _, err := a.cm.Resolve(ctx, addr, rdmacm.Config{}); rejected <- err }

		go ask("192.0.2.2:7471")
		r, err := l.Request(ctx)
		must(t, err)
		if err := r.Delay(time.Second); !errors.Is(err, ib.ErrState) {
			t.Errorf("delayed a datagram service's answer: %v, want %v", err, ib.ErrState)
		}
		must(t, r.Reject([]byte("no")))
		for _, tt := range []struct {
			ask     func()
			status  ib.SIDRStatus
			private string
			says    string
		}{
			{func() {}, ib.SIDRReject, "no", "application"},
			{func() { ask("192.0.2.2:7472") }, ib.SIDRUnsupported, "", "status 1"},
		} {
			tt.ask()
			var e *rdmacm.RejectError
			if err := <-rejected; !errors.As(err, &e) || e.Status != tt.status ||
				!errors.Is(err, &rdmacm.RejectError{Status: tt.status}) ||
				!bytes.Equal(e.PrivateData, padded(tt.private, 136)) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("rejected with %v, want status %d, private data %q", err, tt.status, tt.private)
			}
		}
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var timeout *rdmacm.TimeoutError
		if _, err := a.cm.Resolve(short, "192.0.2.9:7471", rdmacm.Config{}); !errors.As(err, &timeout) ||
			timeout.Step != "SIDR_REQ" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("resolved at nobody's: %v, want a timeout at SIDR_REQ, %v", err, context.DeadlineExceeded)
		}
		if _, err := a.cm.Resolve(ctx, "192.0.2.2:7471", rdmacm.Config{PrivateData: make([]byte, 181)}); !errors.Is(err,
			ib.ErrPrivateData) {
			t.Errorf("too much private data: %v, want %v", err, ib.ErrPrivateData)
		}
		if !a.cm.Idle() {
			t.Error("something is left")
		}
	})
}

// TestJoin: members of a group get what is sent to it, of both families.
func TestJoin(t *testing.T) {
	simulate(t, func(t *testing.T, a, b *node) {
		ctx := patience(t)
		for _, group := range []string{"239.1.2.3", "ff0e::1:2", "ff02::77"} {
			addr := addrPort("[" + strings.Replace(group, "239", "::ffff:239", 1) + "]:1").Addr()
			x, y := newUD(t, a), newUD(t, b)
			mx, err := a.cm.Join(ctx, addr, x.qp)
			must(t, err)
			my, err := b.cm.Join(ctx, addr, y.qp)
			must(t, err)
			gids, _ := a.dev.GIDs(1)
			if local := gids[mx.AH.SGIDIndex].GID.Addr(); local.IsLinkLocalUnicast() != addr.IsLinkLocalMulticast() ||
				local.Is4() != addr.Unmap().Is4() {
				t.Errorf("%s: sent from %v, want link-local %v, IPv4 %v", group, local, addr.IsLinkLocalMulticast(),
					addr.Unmap().Is4())
			}
			x.send(t, mx.AH, mx.QPN, mx.QKey, "to all")
			for _, d := range []*datagrams{y, x} {
				for { // x also has the completion of its send
					wc := want(t, poll(t, d.cq))
					if wc.Opcode == ib.WCRecv {
						break
					}
				}
				if text := string(d.in.buf[ib.GRHLen:][:6]); text != "to all" {
					t.Errorf("%s: received %q, want %q", group, text, "to all")
				}
			}
			must(t, mx.Leave())
			must(t, my.Leave())
			if err := my.Leave(); !errors.Is(err, ib.ErrInvalid) {
				t.Errorf("left twice: %v, want %v", err, ib.ErrInvalid)
			}
		}
		var attr *ib.AttrError
		if _, err := a.cm.Join(ctx, a.addr, newUD(t, a).qp); !errors.As(err, &attr) || attr.Attr != "group" {
			t.Errorf("joined a unicast address: %v, want an error of attribute group", err)
		}
		c, _ := connect(t, a, b, rdmacm.Config{}, rdmacm.Config{})
		if _, err := a.cm.Join(ctx, addrPort("239.1.2.3:0").Addr(), c.QP()); !errors.As(err, &attr) ||
			attr.Allowed != "UD" {
			t.Errorf("an RC QP joined: %v, want an error that allows UD", err)
		}
	})
}
