package pingpong

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestMark: a C tool's address has no mark, and the mark changes no value.
func TestMark(t *testing.T) {
	a := address{qpn: 0xabcdef, psn: 0xabcdef, gid: ib.GID{0xfe, 0x80, 15: 0xaf}}
	msg := a.encode()
	if marked(msg) || marked([]byte(message)) {
		t.Errorf("%q has a mark", msg)
	}
	mark(msg)
	if got, err := decodeAddress(msg); !marked(msg) || err != nil || got != a {
		t.Errorf("%q: mark %v, %v, %v; want a mark, %v", msg, marked(msg), &got, err, &a)
	}
	if other := []byte(strings.ToUpper(string(msg))); marked(other) {
		t.Errorf("%q, all in upper case, has a mark", other)
	}
}

// TestMismatch: ends whose options do not fit both say so at once, with the option, both values and both commands.
func TestMismatch(t *testing.T) {
	for _, c := range []struct {
		name           string
		server, client Service
		change         func(server, client *Options)
		here           string // what the server says
		run            string // the command that fits the client
	}{
		{"size", RC, RC, func(so, co *Options) { so.Size, co.Size = 1000, 2000 },
			"-s is 1000 here and 2000 at the client", "goroced pingpong -s 2000"},
		{"check", RC, RC, func(so, co *Options) { so.Check = true }, "-c is on here and off at the client",
			"goroced pingpong"},
		{"number and MTU", UC, UC, func(so, co *Options) { co.Iters, co.MTU = 5, ib.MTU512 },
			"-m is 1024 here and 512 at the client, -n is 1000 here and 5 at the client",
			"goroced pingpong --service uc -m 512 -n 5"},
		{"queue pairs", SRQ, SRQ, func(so, co *Options) { so.NumQP = 4 }, "-q is 4 here and 16 at the client",
			"goroced pingpong --service srq"},
		{"service", RC, UD, func(so, co *Options) {}, "--service is rc here and ud at the client;",
			"goroced pingpong --service ud"},
		{"srq at the client", RC, SRQ, func(so, co *Options) {}, "--service is rc here and srq at the client;",
			"goroced pingpong --service srq"},
		{"srq at the server", SRQ, UC, func(so, co *Options) {}, "--service is srq here and uc at the client;",
			"goroced pingpong --service uc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulated(t, func(t *testing.T, p *place) {
				so, co := Defaults(c.server), Defaults(c.client)
				c.change(&so, &co)
				begin := time.Now()
				server, client := p.meet(t, so, co, wrap.FaultConfig{})
				for _, e := range []struct {
					*end
					want []string
				}{
					{server, []string{c.here, "run here `" + c.run + "`"}},
					{client, []string{"or there `" + c.run + "`"}},
				} {
					err := e.Wait(t)
					for _, want := range e.want {
						if !errors.Is(err, meet.ErrMismatch) || !strings.Contains(err.Error(), want) {
							t.Errorf("got error %v, want %v that says %q", err, meet.ErrMismatch, want)
						}
					}
				}
				if took := time.Since(begin); took > 3*time.Second {
					t.Errorf("it took %v, want it at once", took)
				}
			})
		})
	}
}

// TestMixed: an end that tells its options plays with one that cannot, at either end.
func TestMixed(t *testing.T) {
	for _, service := range allServices {
		for _, muteServer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, mute server %v", service, muteServer), func(t *testing.T) {
				simulated(t, func(t *testing.T, p *place) {
					so := Defaults(service)
					so.Iters = 50
					co := so
					so.mute, co.mute = muteServer, !muteServer
					server, client := p.meet(t, so, co, wrap.FaultConfig{})
					if err := errors.Join(server.Wait(t), client.Wait(t)); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
