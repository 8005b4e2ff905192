package rdmacm_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
	"github.com/goroce/goroce/tests/require"
	"github.com/goroce/goroce/wire"
)

// node is a device and its connection manager.
type node struct {
	dev  roce.Device
	cm   *rdmacm.CM
	addr netip.Addr // the device's first
}

// at returns the address of a port of the host for Dial.
func (h *node) at(port string) string { return net.JoinHostPort(h.addr.String(), port) }

// openHost opens a device on a link, for as long as the test runs.
func openHost(t testing.TB, l link.Link) *node {
	t.Helper()
	dev, err := roce.Open(l, roce.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	h := &node{dev: dev, addr: dev.Link().Local[0].Addr()}
	if h.cm, err = rdmacm.Open(dev, rdmacm.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.cm.Close(); err != nil {
			t.Errorf("close of the CM: %v", err)
		}
	})
	return h
}

// simulate runs a test in virtual time, on two hosts: 192.0.2.1 and 192.0.2.2.
func simulate(t *testing.T, test func(t *testing.T, a, b *node)) {
	t.Helper()
	simulateOn(t, simtest.Config{}, func(t *testing.T, hosts []*node) { test(t, hosts[0], hosts[1]) })
}

// simulateOn runs a test in virtual time, on hosts and a network as c says.
func simulateOn(t *testing.T, c simtest.Config, test func(t *testing.T, hosts []*node)) {
	t.Helper()
	simtest.Run(t, c, func(t *testing.T, n *simtest.Net) {
		var hosts []*node
		for _, h := range n.Hosts {
			hosts = append(hosts, &node{dev: h.Device(), cm: h.CM(), addr: h.Addr()})
		}
		test(t, hosts)
	})
}

// only returns a simtest.Config.Wrap that changes the link of one host.
func only(host int, f func(link.Link) link.Link) func(int, link.Link) link.Link {
	return func(h int, l link.Link) link.Link {
		if h == host {
			return f(l)
		}
		return l
	}
}

// without returns the link of a host that does not send one of the connection manager's messages.
func without(m wire.CMAttr) func(link.Link) link.Link {
	return func(l link.Link) link.Link { return &censor{l, func(sent wire.CMAttr) bool { return sent == m }} }
}

// patience limits the waits of a test.
func patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// requests returns how many connections were asked for. On a slow machine a REQ comes more than once.
func requests(h *node) uint64 {
	s := h.cm.Stats()
	return s.Received.Of(wire.AttrREQ) - s.Duplicates
}

func listen(t testing.TB, h *node, addr string, o rdmacm.ListenConfig) *rdmacm.Listener {
	t.Helper()
	l, err := h.cm.Listen(patience(t), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect dials and accepts.
func connect(t testing.TB, a, b *node, dial, accept rdmacm.Config) (client, server *rdmacm.Conn) {
	t.Helper()
	l := listen(t, b, b.at("0"), rdmacm.ListenConfig{Config: accept})
	defer l.Close()
	return dialTo(t, a, l, l.Addr().String(), dial)
}

// dialTo dials to a listener, which accepts.
func dialTo(t testing.TB, a *node, l *rdmacm.Listener, addr string, dial rdmacm.Config) (client, server *rdmacm.Conn) {
	t.Helper()
	ctx := patience(t)
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept(ctx)
		accepted <- err
	}()
	client, err := a.cm.Dial(ctx, addr, dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// poll returns the next completion.
func poll(t testing.TB, cq ib.CQ) ib.WC {
	t.Helper()
	var wcs [1]ib.WC
	require.Until(t, "a completion", func() bool {
		n, err := cq.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	return wcs[0]
}

// want fails unless a completion is a success.
func want(t testing.TB, wc ib.WC) ib.WC {
	t.Helper()
	if err := wc.Err(); err != nil {
		t.Fatal(err)
	}
	return wc
}

// memory is registered memory.
type memory struct {
	ib.MR
	buf []byte
}

func register(t testing.TB, pd ib.PD, n int) memory {
	t.Helper()
	m := memory{buf: make([]byte, n)}
	var err error
	if m.MR, err = pd.RegMR(ib.MRInit{Buf: m.buf, Access: ib.LocalWrite | ib.RemoteRead}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func (m memory) sgl() []ib.SGE {
	return []ib.SGE{{Addr: m.Addr(), Length: uint32(len(m.buf)), LKey: m.LKey()}}
}

// censor is a link that drops some of the connection manager's messages that are sent.
type censor struct {
	link.Link
	drop func(wire.CMAttr) bool
}

func (c *censor) Send(now ib.Instant, runs []link.Run) (int, error) {
	for i := range runs {
		for f := range runs[i].Frames() {
			one := runs[i]
			one.Buf = runs[i].Frame(f)
			if attr, ok := cmMessage(one.Buf); ok && c.drop(attr) {
				continue
			}
			if _, err := c.Link.Send(now, []link.Run{one}); err != nil {
				return 0, err
			}
		}
	}
	return len(runs), nil
}

// cmMessage returns which message a frame to QP 1 is; the MAD follows BTH and DETH.
func cmMessage(frame []byte) (wire.CMAttr, bool) {
	const mad = 12 + 8
	if len(frame) < mad+wire.MADLen || frame[7] != 1 {
		return 0, false
	}
	var h wire.MADHeader
	h.Decode((*[wire.MADLen]byte)(frame[mad:]))
	return h.Attr, true
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// port is the port of a listener.
func port(l *rdmacm.Listener) string { return strconv.Itoa(int(l.Addr().Port())) }

// datagrams is a UD QP in RTS, and what it takes to use it.
type datagrams struct {
	h  *node
	pd ib.PD
	cq ib.CQ
	qp ib.QP
	in memory
}

func newUD(t testing.TB, h *node) *datagrams {
	t.Helper()
	d := &datagrams{h: h}
	var err error
	d.pd, err = h.dev.AllocPD()
	must(t, err)
	d.cq, err = h.dev.CreateCQ(ib.CQInit{Entries: 16})
	must(t, err)
	d.qp, err = d.pd.CreateQP(ib.QPInit{Type: ib.UD, SendCQ: d.cq, RecvCQ: d.cq,
		Cap: ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxRecvSGE: 1, MaxInline: 512}})
	must(t, err)
	must(t, d.qp.Modify(ib.QPAttr{State: ib.StateInit, Port: 1, QKey: rdmacm.DefaultQKey},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrQKey))
	d.in = register(t, d.pd, ib.GRHLen+32)
	_, err = d.qp.PostRecv([]ib.RecvWR{{SGL: d.in.sgl()}})
	must(t, err)
	must(t, d.qp.Modify(ib.QPAttr{State: ib.StateRTR}, ib.AttrState))
	must(t, d.qp.Modify(ib.QPAttr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN))
	return d
}

// send sends a datagram and does not wait for its completion.
func (d *datagrams) send(t testing.TB, to ib.AHAttr, qpn ib.QPN, qkey uint32, text string) {
	t.Helper()
	ah, err := d.pd.CreateAH(to)
	must(t, err)
	t.Cleanup(func() { ah.Close() })
	require.Until(t, "there is room in the send queue", func() bool {
		_, err = d.qp.PostSend([]ib.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte(text), AH: ah.Num(),
			RemoteQPN: qpn, RemoteQKey: qkey}})
		return !errors.Is(err, ib.ErrQueueFull)
	})
	must(t, err)
}

// receive returns the next datagram and the QP that it came from.
func (d *datagrams) receive(t testing.TB) (string, ib.QPN) {
	t.Helper()
	wc := want(t, poll(t, d.cq))
	return string(d.in.buf[ib.GRHLen:wc.ByteLen]), wc.SrcQP
}
