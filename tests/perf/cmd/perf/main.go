// Command perf measures goroce beside kernel TCP and bare sockets, as root:
//
//	go run ./tests/perf/cmd/perf
//
// The documentation of package perf explains the output. An interrupt ends the run, with the results so far.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/goroce/tests/perf"
)

func main() {
	perf.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("perf", flag.ContinueOnError)
	o := perf.Options{Progress: progress}
	flags.IntVar(&o.Rounds, "rounds", 5, "how often each row is measured while the machine is quiet")
	flags.DurationVar(&o.Duration, "duration", 500*time.Millisecond, "how long a row is measured in a round")
	flags.DurationVar(&o.Limit, "limit", 15*time.Minute, "end the run after this time with what it has; 0: never")
	flags.BoolVar(&o.VM, "vm", false, "measure in two guests of the rxe lab too")
	flags.StringVar(&o.CPUProfile, "cpuprofile", "",
		"write CPU profiles of both ends of each row to files named after `FILE`")
	only := flags.String("rows", "", "measure the rows that this `regexp` matches, and those they are held against")
	mtus := flags.String("mtu", "1500,9000", "MTUs of the wires, in `bytes`")
	jsonFile := flags.String("json", "", "write all samples to `FILE`")
	svgDir := flags.String("svg", "", "write plots to `DIR`")
	list := flags.Bool("list", false, "list the rows and their bars")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: there are only flags; -h lists them", flags.Arg(0))
	}
	if err := parse(&o, *only, *mtus); err != nil {
		return err
	}
	if *list {
		o.WriteList(out)
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces need root: run it as root (-list does not need it)")
	}
	rep, err := perf.Run(ctx, o)
	if rep == nil {
		return err
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted: the table holds what was measured by then")
	}
	errs := []error{err, rep.WriteTable(out)}
	if *jsonFile != "" {
		errs = append(errs, writeFile(*jsonFile, rep.WriteJSON))
	}
	if *svgDir != "" {
		errs = append(errs, rep.WritePlots(*svgDir))
	}
	return errors.Join(errs...)
}

// parse checks the options, and sets those that need parsing.
func parse(o *perf.Options, only, mtus string) error {
	if o.Rounds < 1 || o.Duration <= 0 || o.Limit < 0 {
		return fmt.Errorf("-rounds %d -duration %v -limit %v: at least one round and some time are needed", o.Rounds,
			o.Duration, o.Limit)
	}
	if only != "" {
		var err error
		if o.Rows, err = regexp.Compile(only); err != nil {
			return fmt.Errorf("-rows: %w", err)
		}
	}
	for text := range strings.SplitSeq(mtus, ",") {
		mtu, err := strconv.Atoi(text)
		if err != nil || mtu < 1280 || mtu > 65535 {
			return fmt.Errorf("-mtu %q: a list of MTUs from 1280 to 65535 is possible", mtus)
		}
		o.MTUs = append(o.MTUs, mtu)
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
