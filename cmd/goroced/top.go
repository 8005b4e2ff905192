//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/goroce/goroce/cmd/goroced/internal/top"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/daemon/server"
)

// topCmd is `goroced top`.
type topCmd struct {
	Interval  time.Duration `short:"i" default:"1s" help:"What the rates are measured over."`
	Count     int           `short:"n" placeholder:"N" help:"End after so many intervals (default: 1 where the output is no terminal, else when interrupted)."`
	Processes bool          `short:"p" help:"A row for each process, not for each queue pair."`
	Sort      string        `complete:"columns" short:"s" default:"tx" placeholder:"COLUMN" help:"Sort by this column (default: tx); see below."`
	Reverse   bool          `short:"r" help:"The smallest first."`
	Filter    string        `short:"f" placeholder:"TEXT" help:"Only rows that have this text in a cell."`
	Plain     bool          `help:"Print the table at each interval, on a terminal, too."`
	JSON      bool          `help:"Print an array of JSON objects, on a line, at each interval."`
	adminFlags
}

// Help is printed under the flags.
func (*topCmd) Help() string {
	return "Shows what the queue pairs of a running daemon's clients do: rates of the last interval, the smoothed " +
		"round trip to the destination, its congestion window, pace in Gb/s and packets in flight (which all queue " +
		"pairs of a user to one destination share), packets that were sent again, marks of congestion from the " +
		"destination (ECN and CNPs), RNR NAKs of both directions, and why a queue pair has failed. Messages " +
		"received are counted as they arrive: a large RDMA WRITE of goroce is one for each packet. Of other users' " +
		"queue pairs only their process is shown.\n\n" +
		"Columns to sort by: " + strings.Join(top.Columns(), ", ") + "."
}

// Run runs the subcommand.
func (c *topCmd) Run(a *app) error {
	if c.Interval <= 0 {
		return driver.Refuse("top", "--interval", c.Interval, "more than 0", ib.ErrInvalid)
	}
	if !slices.Contains(top.Columns(), c.Sort) {
		return driver.Refuse("top", "--sort", c.Sort, strings.Join(top.Columns(), ", "), ib.ErrInvalid)
	}
	client, err := (&viewFlags{adminFlags: c.adminFlags}).client(a)
	if err != nil {
		return err
	}
	get := func(ctx context.Context) ([]server.QPInfo, error) {
		list, err := client.QPs(ctx)
		other := func(q server.QPInfo) bool { return c.Device != "" && q.Device != c.Device }
		return slices.DeleteFunc(list, other), err
	}
	view := top.View{Processes: c.Processes, Sort: c.Sort, Reverse: c.Reverse, Filter: c.Filter}
	if !a.term.Real || c.Plain || c.JSON || c.Count > 0 {
		return c.print(a, get, &view)
	}
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("draw on the terminal: %w; `goroced top --plain` does without", err)
	}
	return top.Show(a.ctx, screen, get, view, c.Interval)
}

// print prints the table, or JSON, at each interval.
func (c *topCmd) print(a *app, get top.Source, view *top.View) error {
	most := c.Count
	if most == 0 && !a.term.Real {
		most = 1
	}
	n := 0
	for rows, err := range get.Intervals(a.ctx, c.Interval) {
		switch {
		case a.ctx.Err() != nil:
			return nil // interrupted: the usual end
		case err != nil:
		case c.JSON:
			err = json.NewEncoder(a.out).Encode(view.Select(rows))
		default:
			err = top.Print(a.out, view, rows)
		}
		if n++; err != nil || n == most {
			return err
		}
	}
	return nil
}
