package pingpong

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/tests/toolstest"
)

// The C tool's message for LID 0, QPN 0x12, PSN 0x123456 and GID ::ffff:10.0.0.1.
const message = "0000:000012:123456:00000000000000000000ffff0a000001\x00"

func TestMessage(t *testing.T) {
	want := address{qpn: 0x12, psn: 0x123456, gid: ib.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))}
	if got := string(want.encode()); got != message {
		t.Errorf("encoded as %q, want %q", got, message)
	}
	got, err := decodeAddress([]byte(message))
	if err != nil || got != want {
		t.Errorf("decoded as %v, %v, want %v", &got, err, &want)
	}
	if text := want.String(); text != "LID 0x0000, QPN 0x000012, PSN 0x123456, GID ::ffff:10.0.0.1" {
		t.Errorf("printed as %q, want %q", text, "LID 0x0000, QPN 0x000012, PSN 0x123456, GID ::ffff:10.0.0.1")
	}
}

// TestPrintAddress: on a terminal that is too narrow for the C tool's line, the GID has one of its own.
func TestPrintAddress(t *testing.T) {
	a := address{qpn: 0x12, psn: 0x123456, gid: ib.GIDFromAddr(netip.MustParseAddr("192.168.100.200"))}
	for columns, want := range map[int]string{
		0:  "  remote address: LID 0x0000, QPN 0x000012, PSN 0x123456, GID ::ffff:192.168.100.200\n",
		84: "  remote address: LID 0x0000, QPN 0x000012, PSN 0x123456, GID ::ffff:192.168.100.200\n",
		80: "  remote address: LID 0x0000, QPN 0x000012, PSN 0x123456,\n" +
			"                  GID ::ffff:192.168.100.200\n",
	} {
		var out bytes.Buffer
		o := Options{Out: &out, Columns: columns}
		if o.printAddress("remote address: ", &a); out.String() != want {
			t.Errorf("on %d columns:\n%swant\n%s", columns, out.String(), want)
		}
	}
}

func TestBadMessages(t *testing.T) {
	for _, msg := range []string{
		"", "\x00", strings.Repeat("x", addressLen), "GET / HTTP/1.1\r\n",
		"0000:000012:123456", strings.Replace(message, ":", " ", 1),
		strings.Replace(message, "0000:", "-001:", 1), strings.Replace(message, "123456", "+23456", 1),
		strings.Replace(message, "000012", "1000000", 1), strings.Replace(message, "ffff", "fffg", 1),
		strings.TrimSuffix(message, "01\x00"), strings.TrimSuffix(message, "\x00") + "00",
	} {
		if a, err := decodeAddress([]byte(msg)); !errors.Is(err, ErrExchange) {
			t.Errorf("%q was taken as %v, error %v; want %v", msg, &a, err, ErrExchange)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(message))
	f.Add([]byte(":::"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		a, err := decodeAddress(msg)
		if err != nil {
			return
		}
		if back, err := decodeAddress(a.encode()); err != nil || back != a {
			t.Errorf("%v, %v; want %v", &back, err, &a)
		}
	})
}

// TestServerMeetsTheCTool plays the C tool's client, byte by byte: it sends its
// address and reads ours in one read of the full size, then says done and closes.
func TestServerMeetsTheCTool(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		dev := p.open(wrap.FaultConfig{})
		o := Defaults(RC)
		p.setUp(&o)
		server := start(t, dev, o)
		server.Await(t, server.Log, "waiting for a client")
		conn, err := o.network.DialContext(t.Context(), "tcp", toolAddr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(message)); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, 1024)
		n, err := conn.Read(reply)
		if err != nil || n != addressLen || reply[n-1] != 0 {
			t.Fatalf("the server replied %q, %v; want %d bytes, NUL at the end", reply[:n], err, addressLen)
		}
		a, err := decodeAddress(reply[:n])
		if addr := toolstest.Addr(t, dev); err != nil || a.gid != ib.GIDFromAddr(addr) || a.lid != 0 {
			t.Errorf("the server's address is %v, %v; want the GID of %v, without LID", &a, err, addr)
		}
		if _, err := conn.Write([]byte("done\x00")); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		// The client's queue pair never sends.
		if err := server.Wait(t); !errors.Is(err, ErrSilent) {
			t.Errorf("error %v, want %v", err, ErrSilent)
		}
		if !strings.Contains(server.Out.String(),
			"remote address: LID 0x0000, QPN 0x000012, PSN 0x123456, GID ::ffff:10.0.0.1") {
			t.Errorf("printed, want %q:\n%s",
				"remote address: LID 0x0000, QPN 0x000012, PSN 0x123456, GID ::ffff:10.0.0.1", server.Out.String())
		}
	})
}

// toolAddr is where the servers of the C tools listen.
const toolAddr = ":18515"

// script is a server that reads an address, says something and goes on.
func script(t *testing.T, l net.Listener, say string, after func(net.Conn)) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, addressLen)); err == nil {
			_, _ = io.WriteString(conn, say)
			after(conn)
		}
	}()
}

// TestClientMeetsTheCTool: the client says done, and reports a queue pair that
// does not answer.
func TestClientMeetsTheCTool(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) {
		dev, other := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
		nobody := address{qpn: 0x11, psn: 1, gid: ib.GIDFromAddr(toolstest.Addr(t, other))}
		done := make(chan []byte, 1)
		o := Defaults(RC)
		p.setUp(&o)
		o.Host = "server"
		l, err := o.network.Listen(t.Context(), "tcp", toolAddr)
		if err != nil {
			t.Fatal(err)
		}
		script(t, l, string(nobody.encode()), func(conn net.Conn) {
			msg := make([]byte, 1024)
			n, _ := conn.Read(msg)
			done <- msg[:n]
		})
		_, err = Run(t.Context(), dev, o)
		if !errors.Is(err, &ib.WCError{Status: ib.WCRetryExcErr}) ||
			!strings.Contains(err.Error(), "does not answer on UDP port 4791") {
			t.Errorf("error %v, want %v with advice", err, ib.WCRetryExcErr)
		}
		if msg := <-done; !bytes.Equal(msg, []byte("done\x00")) {
			t.Errorf("the client said %q, want %q", msg, "done\x00")
		}
	})
}

func TestRefusedOptions(t *testing.T) {
	simulated(t, func(t *testing.T, p *place) { refusedOptions(t, p.open(wrap.FaultConfig{})) })
}

func refusedOptions(t *testing.T, dev ib.Device) {
	for _, c := range []struct {
		attr   string
		change func(*Options)
	}{
		{"MTU", func(o *Options) { o.MTU = 1500 }},
		{"MTU", func(o *Options) { o.MTU = 8192 }},
		{"MTU", func(o *Options) { o.Service, o.Size = UD, 1 }},
		{"Service", func(o *Options) { o.Service = Service(len(services)) }},
		{"Service", func(o *Options) { o.Service = -1 }},
		{"NumQP", func(o *Options) { o.NumQP = 0 }},
		{"NumQP", func(o *Options) { o.NumQP = 2 }},
		{"NumQP", func(o *Options) { *o = Defaults(SRQ); o.NumQP = 256 }},
		{"Size", func(o *Options) { *o = Defaults(UD); o.Size = 4097 }},
		{"Size", func(o *Options) { o.Size = 0 }},
		{"Size", func(o *Options) { o.Size = MaxSize + 1 }},
		{"RxDepth", func(o *Options) { o.RxDepth = 0 }},
		{"RxDepth", func(o *Options) { o.RxDepth = 1 << 20 }},
		{"Iters", func(o *Options) { o.Iters = 0 }},
		{"SL", func(o *Options) { o.SL = 16 }},
		{"AckTimeout", func(o *Options) { o.AckTimeout = 32 }},
		{"RetryCount", func(o *Options) { o.RetryCount = 8 }},
		{"Port", func(o *Options) { o.Port = 65536 }},
		{"port", func(o *Options) { o.IBPort = 2 }},
		{"GIDIndex", func(o *Options) { o.GIDIndex = 9 }},
		{"Timeout", func(o *Options) { o.Timeout = 0 }},
	} {
		o := Defaults(RC)
		c.change(&o)
		var attr *ib.AttrError
		if _, err := Run(t.Context(), dev, o); !errors.As(err, &attr) || attr.Attr != c.attr || attr.Allowed == "" {
			t.Errorf("%s: error %v, want one that names it and what is allowed", c.attr, err)
		}
	}
}

// TestFarewell: with RC an end waits for a C tool that has left no longer than that tool repeats a message, and with UC
// and UD, which have no acknowledgements, it does not even wait for a peer that stays.
func TestFarewell(t *testing.T) {
	for _, service := range allServices {
		simulated(t, func(t *testing.T, p *place) {
			o := Defaults(service)
			p.setUp(&o)
			l, err := o.network.Listen(t.Context(), "tcp", toolAddr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			o.Host = "server"
			conn, err := o.meet(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			tool, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer tool.Close()
			want := time.Duration(0)
			if service.traits().qpType == ib.RC {
				tool.Close()
				want = toolRepeats
			}
			o.AckTimeout, o.Timeout = 31, time.Hour
			begun := time.Now()
			if farewell(conn, &o); time.Since(begun) != want {
				t.Errorf("%v: it waits for %v, want %v", service, time.Since(begun), want)
			}
		})
	}
}
