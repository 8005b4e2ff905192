package pingpong

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/toolstest"
)

// live is the machine: links over UDP, and TCP.
func live(t *testing.T) *place {
	port := linktest.Port(t)
	return &place{func(f wrap.FaultConfig) roce.Device { return toolstest.Device(t, f) },
		func(o *Options) { o.Port = port }}
}

// patience is an ACK timeout of 1.1 s: eight of them are longer than a machine at work keeps a thread waiting.
const patience = 18

// TestLive plays over the machine's network: TCP, UDP and real time.
func TestLive(t *testing.T) {
	o := Defaults(RC)
	o.Iters, o.Check, o.AckTimeout = 100, true, patience
	server, client := live(t).match(t, o, wrap.FaultConfig{})
	finish(t, &o, server, client)
}

func TestServerIsCancelled(t *testing.T) {
	dev := toolstest.Device(t, wrap.FaultConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o := Defaults(RC)
	o.Port = 0
	if _, err := Run(ctx, dev, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
}

// TestClientErrors meets what may be at a TCP port.
func TestClientErrors(t *testing.T) {
	tcp := func(t *testing.T, say string, after func(net.Conn)) (port int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		script(t, l, say, after)
		return l.Addr().(*net.TCPAddr).Port
	}
	hang := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	leave := func(net.Conn) {}
	for _, c := range []struct {
		name   string
		change func(*Options)
		is     error
		want   string
	}{
		// The empty label keeps the name from being asked of a server.
		{"unknown host", func(o *Options) { o.Host = "no-such-host..invalid" }, nil, "no-such-host..invalid"},
		{"nobody listens", func(o *Options) { o.Port = linktest.Port(t) }, nil, "start it there first"},
		{"server never answers", func(o *Options) { o.Port, o.Timeout = tcp(t, "", hang), 200*time.Millisecond },
			ErrExchange, "0 of 52 bytes"},
		{"server leaves", func(o *Options) { o.Port = tcp(t, message[:20], leave) }, ErrExchange, "20 of 52 bytes"},
		{"server is no ping-pong",
			func(o *Options) { o.Port = tcp(t, strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 3), hang) },
			ErrExchange, "is the peer ibv_rc_pingpong, or goroced with --service rc?"},
		{"server has no GID", func(o *Options) {
			o.Port = tcp(t, strings.Replace(message, "ffff0a000001", "000000000000", 1), hang)
		}, ErrExchange, "-g INDEX"},
		{"server has an IPv6 GID", func(o *Options) {
			a := address{qpn: 0x11, gid: ib.GIDFromAddr(netip.MustParseAddr("2001:db8::1"))}
			o.Port = tcp(t, string(a.encode()), hang)
		}, ib.ErrInvalid, "SGIDIndex"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := toolstest.Device(t, wrap.FaultConfig{})
			o := Defaults(RC)
			o.Host, o.Timeout = "127.0.0.1", time.Minute
			c.change(&o)
			_, err := Run(t.Context(), dev, o)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %v that says %q", err, c.is, c.want)
			}
		})
	}
}
