package perf

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/roce/link/wrap"
)

// TestMismatch: ends whose options do not fit both say so at once, with the option, both values and both commands.
func TestMismatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     Op
		server func(*Options)
		client func(*Options)
		here   string // what the server says
		run    string // the command that it names
	}{
		{"size", Write, func(o *Options) { o.Size = 1000 }, func(o *Options) { o.Size = 2000 },
			"-s is 1000 here and 2000 at the client", "goroced perf write bw -s 2000"},
		{"number", Send, func(o *Options) {}, func(o *Options) { o.Iters = 5 },
			"-n is 1000 here and 5 at the client", "goroced perf send bw -n 5"},
		{"duration", Send, func(o *Options) { o.Duration = 2 * time.Second }, func(o *Options) {},
			"-D is 2 here and 0 at the client", "goroced perf send bw"},
		{"queue pairs and service", Write, func(o *Options) {}, func(o *Options) { o.NumQP, o.Service = 3, UC },
			"-c is RC here and UC at the client, -q is 1 here and 3 at the client", "goroced perf write bw -c UC -q 3"},
		{"direction", Read, func(o *Options) { o.Bidirectional = true }, func(o *Options) {},
			"-b is on here and off at the client", "goroced perf read bw"},
		{"unit", Read, func(o *Options) { o.Bidirectional, o.Gbits = true, true },
			func(o *Options) { o.Bidirectional = true },
			"--report_gbits is on here and off at the client", "goroced perf read bw -b"},
		{"test", Write, func(o *Options) {},
			func(o *Options) { *o = with(Defaults(Write, Lat), func(l *Options) { l.CM = o.CM }) },
			"test is write bw here and write lat at the client", "goroced perf write lat"},
		{"all sizes", Send, func(o *Options) {}, func(o *Options) { o.All, o.Size = true, 4096 },
			"-a is off here and on at the client", "goroced perf send bw -a -s 4096"},
	} {
		for _, cm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, rdma_cm %v", c.name, cm), func(t *testing.T) {
				simulated(t, func(t *testing.T, p *place) {
					so, co := Defaults(c.op, BW), Defaults(c.op, BW)
					so.CM, co.CM = cm, cm
					c.server(&so)
					c.client(&co)
					begin := time.Now()
					serverDev, clientDev := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
					server := p.start(t, serverDev, so)
					client := p.startClient(t, server, serverDev, clientDev, co)
					run := c.run
					if cm {
						words := strings.Fields(c.run)
						run = strings.Join(append(append(words[:4:4], "-R"), words[4:]...), " ")
					}
					for e, want := range map[*end]string{server: "run here `" + run + "`",
						client: "or there `" + run + "`"} {
						err := e.Wait(t)
						if !errors.Is(err, meet.ErrMismatch) || !strings.Contains(err.Error(), want) {
							t.Errorf("got error %v, want %v that says %q", err, meet.ErrMismatch, want)
						}
					}
					if err := server.Wait(t); !strings.Contains(fmt.Sprint(err), c.here) {
						t.Errorf("the server says %v, want %q", err, c.here)
					}
					if took := time.Since(begin); took > 3*time.Second {
						t.Errorf("it took %v, want it at once", took)
					}
				})
			})
		}
	}
}

func with(o Options, change func(*Options)) Options {
	change(&o)
	return o
}

// TestEnough: the server of a one-sided test only has memory, and need not know how much of it is used, and how often.
func TestEnough(t *testing.T) {
	for _, o := range []Options{Defaults(Write, BW), Defaults(Read, Lat)} {
		simulated(t, func(t *testing.T, p *place) {
			serverDev, clientDev := p.open(wrap.FaultConfig{}), p.open(wrap.FaultConfig{})
			server := p.start(t, serverDev, with(o, func(o *Options) { o.Size, o.All = 4096, true }))
			o.Size, o.Iters = 64, 10
			client := p.startClient(t, server, serverDev, clientDev, o)
			if err := errors.Join(server.Wait(t), client.Wait(t)); err != nil {
				t.Errorf("%v: %v", o.label(), err)
			}
		})
	}
}
