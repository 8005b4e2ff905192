//go:build linux

// Command programs runs programs that others wrote, as they come from the archives of a distribution, over daemons of
// goroce, and writes what came of it: docs/programs.md.
//
//	go run ./tests/programs -install                    # as root on Debian 12: the packages of all rows
//	go run ./tests/programs -list -run fio              # the rows whose name matches
//	go run ./tests/programs -run 'ib_write_bw|rping'    # runs them
//	go run ./tests/programs -o docs/programs.md         # runs all, and writes the page
//
// Each row of the tables in this package has a network and daemons of its own: one daemon for both programs, or two
// network namespaces with a daemon each. Namespaces need root; the programs and the daemons are an ordinary user's all
// the same, unless a row says otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/goroce/goroce/roce/daemon/dropin"
	"github.com/goroce/goroce/tests/gobuild"
)

func main() {
	var (
		pattern = flag.String("run", "", "only rows whose family, program or command matches `REGEXP`")
		where   = flag.String("where", "", "only the place `one` (one daemon) or `two` (two namespaces)")
		list    = flag.Bool("list", false, "list the rows, and run nothing")
		install = flag.Bool("install", false, "install the packages of the rows before, by apt-get")
		output  = flag.String("o", "", "write the page to `FILE`; all rows must be played for that")
		jobs    = flag.Int("j", 2, "rows that are played at a time")
		verbose = flag.Bool("v", false, "print what the programs print")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := command(ctx, options{*pattern, *where, *list, *install, *output, *jobs, *verbose})
	if err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
}

type options struct {
	pattern, where string
	list, install  bool
	output         string
	jobs           int
	verbose        bool
}

func command(ctx context.Context, o options) error {
	wanted, err := regexp.Compile(o.pattern)
	if err != nil {
		return err
	}
	var rows []row
	for _, r := range table() {
		if wanted.MatchString(r.family.name + " " + r.name()) {
			rows = append(rows, r)
		}
	}
	if o.list {
		for _, r := range rows {
			fmt.Printf("%-20s %s\n", r.family.name, r.name())
		}
		return nil
	}
	if o.install {
		if err := installPackages(ctx, rows); err != nil {
			return err
		}
	}
	bench, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bench.dir)
	surprises := bench.playAll(ctx, rows, o)
	if o.output != "" && o.pattern == "" && o.where == "" && surprises == 0 && ctx.Err() == nil {
		return os.WriteFile(o.output, []byte(page(rows, versions(rows))), 0o644)
	}
	if surprises > 0 {
		return fmt.Errorf("%d rows are not as the table says", surprises)
	}
	return ctx.Err()
}

// playAll plays rows, several at a time, and returns how many of the results the table does not expect.
func (b *bench) playAll(ctx context.Context, rows []row, o options) (surprises int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, max(o.jobs, 1))
	for _, r := range rows {
		for _, where := range r.places() {
			if o.where != "" && o.where != where.String() {
				continue
			}
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				if ctx.Err() != nil {
					return
				}
				res := b.play(ctx, r, where)
				mu.Lock()
				defer mu.Unlock()
				fmt.Printf("%-7s %s  %5.1fs  %s\n", res.verdict(), where, res.took.Seconds(), r.name())
				if res.err != nil {
					surprises++
					fmt.Printf("%v\n%s\n", res.err, res.output)
				} else if o.verbose {
					fmt.Println(res.output)
				}
			})
		}
	}
	group.Wait()
	return surprises
}

// bench has what all rows use.
type bench struct {
	dir     string // below it each row has a folder; an ordinary user may read it
	goroced string
	libs    string // of the drop-in
}

// newBench builds goroced and the libraries.
func newBench(ctx context.Context) (*bench, error) {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, goroced: filepath.Join(dir, "goroced")}
	root, err := sourceRoot()
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = gobuild.Program(b.goroced, filepath.Join(root, "cmd/goroced"))
	}
	if err == nil {
		b.libs, err = dropin.Build(ctx, dir)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// sourceRoot returns the top folder of the source: the working directory, or one above it.
func sourceRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", fmt.Errorf("no go.mod here or above: run it in the source of goroce")
		}
	}
	return "", err
}

// families returns the families of rows, in the order of the table.
func families(rows []row) (list []*family) {
	for _, r := range rows {
		if !slices.Contains(list, r.family) {
			list = append(list, r.family)
		}
	}
	return list
}
