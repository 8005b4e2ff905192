//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/tests/linktest"
)

// play plays a row at a place.
func (b *bench) play(ctx context.Context, r row, where place) (res result) {
	res.row = &r
	began := time.Now()
	defer func() { res.took = time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	g, err := b.open(ctx, &r, where)
	if err != nil {
		res.err = err
		return res
	}
	defer g.close()
	if err := g.prepare(ctx, &r); err != nil {
		res.err = err
		return res
	}
	const tries = 10
	for range tries {
		res.err = nil
		g.programs(ctx, &res)
		if res.err == nil || !r.early || r.fails == "" && !tooEarly.MatchString(res.output) {
			break
		}
	}
	return res
}

// tooEarly is what clients of perftest say when they come before their servers listen, which ask them to come by a
// handshake of their own. The client then uses what it has freed, and its server waits for ever.
var tooEarly = regexp.MustCompile(`RDMA CM event error|Event rejected`)

// prepare runs the command that comes before.
func (g *ground) prepare(ctx context.Context, r *row) error {
	if err := os.WriteFile(filepath.Join(g.dir, "agent"), []byte(g.agent()), 0o755); err != nil {
		return err
	}
	if r.setup == "" {
		return nil
	}
	p, err := g.start(g.command(&host{libs: g.libs}, "sh", "-c", g.fill(r.setup)))
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("%s: %w\n%s", r.setup, err, p.out.String())
	}
	return nil
}

// agent is a script as ssh is, by which MPI's launchers reach both hosts: its arguments are an address and a command.
func (g *ground) agent() string {
	var s strings.Builder
	s.WriteString("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n")
	for _, h := range g.hosts {
		cmd := g.command(h, g.goroced, "run", "--socket", h.socket, "--")
		fmt.Fprintf(&s, "%s) exec %s sh -c \"$*\";;\n", h.addr, strings.Join(cmd.Args, " "))
	}
	return s.String() + "esac\n"
}

// fill puts addresses and paths into a command line.
func (g *ground) fill(line string) string {
	server, client := g.hosts[0], g.hosts[1]
	return strings.NewReplacer("{server}", server.addr, "{client}", client.addr, "{server6}", server.addr6,
		"{dir}", g.dir, "{device}", server.device, "{tree}", server.socket+".d").Replace(line)
}

// librspreload makes rsockets of sockets.
const librspreload = "/usr/lib/*/rsocket/librspreload.so.1"

// run starts a command line on a host by `goroced run`.
func (g *ground) run(r *row, h *host, line string) (*process, error) {
	args := []string{g.goroced, "run", "--socket", h.socket, "--", "sh", "-c", "exec env " + g.fill(line)}
	if strings.ContainsAny(line, ";|&") { // several commands
		args[len(args)-1] = g.fill(line)
	}
	if r.streams {
		list, _ := filepath.Glob(librspreload)
		if len(list) == 0 {
			return nil, errors.New("librspreload.so.1 of package librdmacm1 is not installed")
		}
		args = append([]string{"env", "LD_PRELOAD=" + list[0]}, args...)
	}
	return g.start(g.command(h, args...))
}

// programs runs the row's programs.
func (g *ground) programs(ctx context.Context, res *result) {
	r := res.row
	var server *process
	if r.server != "" {
		var err error
		if server, err = g.run(r, g.hosts[0], r.server); err == nil {
			err = g.await(ctx, server, r.ready)
		}
		if err != nil {
			g.judge(ctx, res, err, server, nil)
			return
		}
		defer server.kill()
	}
	client, err := g.run(r, g.hosts[1], r.client)
	if err == nil {
		err = client.wait(ctx)
	}
	if err == nil && server != nil && !r.stays && r.fails == "" {
		if err = server.wait(ctx); err != nil {
			err = fmt.Errorf("server: %w", err)
		}
	}
	g.judge(ctx, res, err, server, client)
}

// judge compares what happened with what the row says.
func (g *ground) judge(ctx context.Context, res *result, err error, server, client *process) {
	r := res.row
	if client != nil {
		res.output = client.out.String()
	}
	said := res.output
	if server != nil {
		res.output += "\nserver:\n" + server.out.String()
	}
	switch says := regexp.MustCompile(g.fill(r.says)); {
	case r.fails != "" && err == nil:
		res.wrong("it works, and the table says that it does not: %s", r.fails)
	case r.fails != "" && !says.MatchString(res.output+err.Error()):
		res.wrong("it fails, but does not say %q: %w", r.says, err)
	case r.fails == "" && err != nil:
		res.err = err
	case r.fails == "" && !says.MatchString(said):
		res.wrong("it does not say %q", r.says)
	case r.fails == "":
		if server != nil {
			server.kill()
		}
		g.empty(ctx, res)
	}
}

// empty waits until the daemons have nothing of the programs.
func (g *ground) empty(ctx context.Context, res *result) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for _, h := range g.hosts {
		for !h.idle(ctx) {
			select {
			case <-ctx.Done():
				res.wrong("the daemon keeps objects of programs that have ended")
				return
			case <-look.C:
			}
		}
	}
}

// wait waits until the program ends.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s does not end: %w", p.cmd.Args[len(p.cmd.Args)-1], ctx.Err())
	}
}

// await waits until a server is ready.
func (g *ground) await(ctx context.Context, server *process, ready string) error {
	if ready == listensCM {
		return server.await(ctx, "it listens by rdma_cm", func() bool {
			ids, _ := g.hosts[0].view(ctx, "cm")
			for _, id := range ids {
				if id.State == "LISTEN" {
					return true
				}
			}
			return false
		})
	}
	if port, err := strconv.Atoi(ready); err == nil {
		return server.await(ctx, "it listens on port "+ready, func() bool {
			return linktest.Listens(g.hosts[0].pid, port)
		})
	}
	text := regexp.MustCompile(ready)
	return server.await(ctx, "it says "+ready, func() bool { return text.MatchString(server.out.String()) })
}
