package pingpong

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
)

func TestServiceNames(t *testing.T) {
	for _, want := range allServices {
		var got Service
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Errorf("%v is read as %v, %v", want, got, err)
		}
	}
	var attr *ib.AttrError
	if err := new(Service).UnmarshalText([]byte("rd")); !errors.As(err, &attr) || attr.Allowed != "rc, uc, ud, srq" {
		t.Errorf("service rd: error %v, want one that lists the services", err)
	}
}

// TestAddressLines: the C tool of SRQ sends 256 addresses, whatever its -q is, the
// others one.
func TestAddressLines(t *testing.T) {
	none := "0000:000000:000000:" + strings.Repeat("0", 32) + "\x00"
	a, err := decodeAddress([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	for service, want := range map[Service]string{
		RC: message, UC: message, UD: message, SRQ: message + message + strings.Repeat(none, 254),
	} {
		lines := service.traits().lines
		local := []address{a, a}[:min(lines, 2)]
		msg := encodeAddresses(local, lines)
		if string(msg) != want {
			t.Errorf("%v: encoded as %.200q, want %.200q", service, msg, want)
		}
		if got, err := decodeAddresses(msg); err != nil || fmt.Sprint(got) != fmt.Sprint(local) {
			t.Errorf("%v: decoded as %v, %v, want %v", service, got, err, local)
		}
	}
}

// converse runs the exchange of two ends with n and m queue pairs.
func converse(t *testing.T, server, client Options, n, m int) (serverErr, clientErr error) {
	t.Helper()
	a, err := decodeAddress([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	many := func(n int) []address {
		addrs := make([]address, n)
		for i := range addrs {
			addrs[i] = a
		}
		return addrs
	}
	log, announce := io.Pipe()
	server.Log, client.Host = announce, "server"
	done := make(chan error, 1)
	go func() {
		conn, err := server.meet(t.Context())
		announce.Close()
		if err == nil {
			_, err = exchange(conn, &server, many(n), func([]address) error { return nil })
			conn.Close()
		}
		done <- err
	}()
	if _, err := log.Read(make([]byte, 1024)); err != nil { // it listens, or has failed
		t.Fatal(<-done)
	}
	conn, err := client.meet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Send(encodeAddresses(many(m), client.Service.traits().lines)); err != nil {
		t.Fatal(err)
	}
	_, clientErr = exchange(conn, &client, many(m), nil)
	return <-done, clientErr
}

// TestExchange: ends of one service understand one another, and others say what
// both must agree on. RC, UC and UD look alike over TCP.
func TestExchange(t *testing.T) {
	for _, server := range allServices {
		for _, client := range allServices {
			simulated(t, func(t *testing.T, p *place) {
				so, co := Defaults(server), Defaults(client)
				p.setUp(&so)
				p.setUp(&co)
				alike := (server == SRQ) == (client == SRQ) // else one waits for what the other does not send
				serverErr, clientErr := converse(t, so, co, so.NumQP, co.NumQP)
				err := errors.Join(serverErr, clientErr)
				if alike != (err == nil) {
					t.Errorf("%v server, %v client: error %v, want none if alike: %v", server, client, err, alike)
				}
				if err != nil && (!errors.Is(serverErr, ErrExchange) ||
					!strings.Contains(serverErr.Error(), so.Service.traits().tool)) {
					t.Errorf("%v server, %v client: the server's error is %v, want %v that names %s", server, client,
						serverErr, ErrExchange, so.Service.traits().tool)
				}
			})
		}
	}
	simulated(t, func(t *testing.T, p *place) {
		o := Defaults(SRQ)
		p.setUp(&o)
		if err, _ := converse(t, o, o, 16, 8); !errors.Is(err, ErrExchange) ||
			!strings.Contains(err.Error(), "8 queue pairs and this end 16; both need the same number (-q)") {
			t.Errorf("8 queue pairs for 16: error %v, want %v, and to use -q", err, ErrExchange)
		}
	})
}

// TestServices plays each service with goroced at both ends.
func TestServices(t *testing.T) {
	for _, c := range []struct {
		name     string
		services []Service
		change   func(*Options)
		fault    wrap.FaultConfig
	}{
		{"defaults", allServices, func(*Options) {}, wrap.FaultConfig{}},
		{"1 byte", allServices, func(o *Options) { o.Size = 1 }, wrap.FaultConfig{}},
		{"1001 bytes", allServices, func(o *Options) { o.Size = 1001 }, wrap.FaultConfig{}},
		{"4096 bytes", allServices, func(o *Options) { o.Size = 4096 }, wrap.FaultConfig{}},
		{"many packets", []Service{RC, UC, SRQ}, func(o *Options) { o.Size, o.MTU = 9000, ib.MTU256 },
			wrap.FaultConfig{}},
		{"events", allServices, func(o *Options) { o.Events = true }, wrap.FaultConfig{}},
		{"least receives", allServices, func(o *Options) { o.RxDepth = o.NumQP }, wrap.FaultConfig{}},
		{"one queue pair", []Service{SRQ}, func(o *Options) { o.NumQP = 1 }, wrap.FaultConfig{}},
		{"255 queue pairs", []Service{SRQ}, func(o *Options) { o.NumQP, o.Iters = 255, 2000 }, wrap.FaultConfig{}},
		{"fewer messages than queue pairs", []Service{SRQ}, func(o *Options) { o.Iters = 3 }, wrap.FaultConfig{}},
		{"losses", []Service{SRQ}, func(*Options) {}, wrap.FaultConfig{Drop: 0.02}},
	} {
		for _, service := range c.services {
			for _, check := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %s, check %v", service, c.name, check), func(t *testing.T) {
					simulated(t, func(t *testing.T, p *place) {
						o := Defaults(service)
						o.Iters, o.Check = 200, check
						c.change(&o)
						server, client := p.match(t, o, c.fault)
						finishService(t, &o, server, client)
					})
				})
			}
		}
	}
}

// finishService waits for both ends and looks at what they wrote.
func finishService(t *testing.T, o *Options, server, client *end) {
	t.Helper()
	for name, e := range map[string]*end{"server": server, "client": client} {
		if err := e.Wait(t); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out := e.Out.String()
		want := fmt.Sprintf("\n%d bytes in ", 2*o.Size*o.Iters)
		if strings.Count(out, "local address: ") != o.NumQP || strings.Count(out, "remote address: ") != o.NumQP ||
			!strings.Contains(out, want) {
			t.Errorf("%s printed, want %d local and remote addresses, and %q:\n%s", name, o.NumQP, want, out)
		}
	}
}

// TestLostPacket: without retransmission a lost packet stops the ping-pong, and both ends
// say why.
func TestLostPacket(t *testing.T) {
	for _, service := range []Service{UC, UD} {
		t.Run(service.String(), func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				o := Defaults(service)
				o.Iters = 10_000
				server, client := p.match(t, o, wrap.FaultConfig{Drop: 0.05})
				for name, e := range map[string]*end{"server": server, "client": client} {
					if err := e.Wait(t); !errors.Is(err, ErrSilent) ||
						!strings.Contains(err.Error(), "does not retransmit") {
						t.Errorf("%s: error %v, want %v with advice", name, err, ErrSilent)
					}
				}
			})
		})
	}
}

// TestOtherService: services that look alike over TCP do not play with one another.
func TestOtherService(t *testing.T) {
	for _, c := range [][2]Service{{RC, UC}, {UC, RC}, {UC, UD}, {UD, RC}} {
		t.Run(fmt.Sprintf("%v server, %v client", c[0], c[1]), func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				so, co := Defaults(c[0]), Defaults(c[1])
				so.Size, co.Size = 1024, 1024
				server, client := p.meet(t, so, co, wrap.FaultConfig{})
				serverErr, clientErr := server.Wait(t), client.Wait(t)
				if serverErr == nil || clientErr == nil || !strings.Contains(clientErr.Error(), "service") {
					t.Errorf("%v server: %v; %v client: %v; want the client to name the service", c[0], serverErr, c[1],
						clientErr)
				}
			})
		})
	}
}
