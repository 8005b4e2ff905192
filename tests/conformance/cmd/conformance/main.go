// Command conformance runs the conformance suite on two devices, one of which may be on another machine:
//
//	conformance serve -device rnic:rxe0 -gid 10.77.0.2 -listen :7471
//	conformance run -device udp:10.77.0.1 -peer 10.77.0.2:7471
//	conformance list
//
// Devices are rnic:NAME (package rnic, with build tag rnic), udp:ADDR[,ADDR...], rawsock:IFACE, and daemon:SOCKET
// (`goroced serve`). A server serves one leader after another, until a signal ends it, or a leader that it cannot play
// with: one of another build, or one with which a case did not end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/goroce/goroce/tests/conformance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: conformance serve|run|list [flags]; -h lists the flags")

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	commands := map[string]func(context.Context, []string, io.Writer) error{"serve": serve, "run": lead, "list": list}
	command := commands[args[0]]
	if command == nil {
		return errUsage
	}
	return command(ctx, args[1:], out)
}

func list(_ context.Context, _ []string, out io.Writer) error { return conformance.List(out) }

// serve runs the other half for each leader that connects.
func serve(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	var d deviceFlags
	d.register(flags)
	listen := flags.String("listen", ":7471", "TCP address to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	party, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer party.Device.Close()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(out, "%s serves on %v\n", party.Device.Attr().Name, l.Addr())
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := conformance.Serve(conn, party); err != nil {
			return err
		}
	}
}

// lead runs the suite against a server.
func lead(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	var d deviceFlags
	d.register(flags)
	peer := flags.String("peer", "", "TCP address of the server")
	cases := flags.String("case", "", "pattern of the cases to run; a trailing /** takes in all below (default all)")
	var part conformance.Part
	flags.Func("part", "`N/OF`: only each OF-th case, from the N-th on, counted from 0", func(s string) error {
		if n, err := fmt.Sscanf(s, "%d/%d", &part.N, &part.Of); n != 2 || part.N < 0 || part.N >= part.Of {
			return errors.Join(errors.New("want two numbers such as 0/2, the first less than the second"), err)
		}
		return nil
	})
	limit := flags.Duration("limit", conformance.DefaultLimit, "what a half of a case may take")
	verbose := flags.Bool("v", false, "print what passes, too")
	asJSON := flags.Bool("json", false, "print a JSON object (conformance.Outcome) for each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	party, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer party.Device.Close()
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", *peer)
	if err != nil {
		return fmt.Errorf("%w; start `conformance serve` there first", err)
	}
	l, err := conformance.Lead(conn, party, conformance.Options{Deviations: conformance.Deviations, Cases: *cases,
		Part: part, Limit: *limit})
	if err != nil {
		return err
	}
	defer l.Close()
	show := func(o *conformance.Outcome) { printText(out, o, *verbose) }
	if *asJSON {
		encoder := json.NewEncoder(out)
		show = func(o *conformance.Outcome) { encoder.Encode(o) }
	}
	return report(ctx, l, show)
}

// report runs all items, and shows the result of each.
func report(ctx context.Context, l *conformance.Leader, show func(*conformance.Outcome)) error {
	failed, items := 0, l.Plan()
	for i, it := range items {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		begun := time.Now()
		r := l.Do(ctx, it)
		o := &conformance.Outcome{Name: it.Name(), Skip: r.Skip, Note: r.Note, Millis: time.Since(begun).Milliseconds()}
		if r.Err != nil {
			o.Err = r.Err.Error()
			failed++
		}
		show(o)
		if r.Broken {
			return fmt.Errorf("%s broke the run off; %d of %d were not played", it.Name(), len(items)-i-1, len(items))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d failed", failed, len(items))
	}
	return nil
}

func printText(out io.Writer, o *conformance.Outcome, verbose bool) {
	switch {
	case o.Err != "":
		fmt.Fprintf(out, "FAIL %s (%d ms)\n\t%s\n", o.Name, o.Millis, o.Err)
	case o.Skip != "":
		fmt.Fprintf(out, "skip %s: %s\n", o.Name, o.Skip)
	case verbose || o.Note != "":
		fmt.Fprintf(out, "ok   %s (%d ms) %s\n", o.Name, o.Millis, o.Note)
	}
}
