package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/goroce/goroce/roce/tools/admin"
)

// viewFlags are those of subcommands that show something of a running daemon.
type viewFlags struct {
	JSON bool `help:"Print JSON."`
	adminFlags
}

// show prints what get returns, all of it or that of --dev.
func show[T any](f *viewFlags, a *app, get func(*admin.Client, context.Context) ([]T, error), device func(*T) string, text func(io.Writer, []T) error) error {
	list, err := get(admin.NewClient(f.Socket), a.ctx)
	if err != nil {
		return err
	}
	if f.Device != "" {
		list = slices.DeleteFunc(list, func(v T) bool { return device(&v) != f.Device })
	}
	if f.JSON {
		return printJSON(a.out, list)
	}
	return text(a.out, list)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

type (
	devicesCmd struct{ viewFlags }
	statusCmd  struct{ viewFlags }
	qpCmd      struct{ viewFlags }
	mrCmd      struct{ viewFlags }
)

func nameOfDevice(d *admin.Device) string { return d.Name }

// Run lists the daemon's devices as ibv_devices does.
func (c *devicesCmd) Run(a *app) error {
	return show(&c.viewFlags, a, (*admin.Client).Devices, nameOfDevice, admin.PrintDevices)
}

// Run shows the ports as `rdma link` does.
func (c *statusCmd) Run(a *app) error {
	if c.JSON && c.Device == "" {
		text, err := admin.NewClient(c.Socket).Status(a.ctx)
		if err != nil {
			return err
		}
		return printJSON(a.out, text)
	}
	return show(&c.viewFlags, a, (*admin.Client).Devices, nameOfDevice, admin.PrintLinks)
}

// Run shows the queue pairs as `rdma resource show qp` does.
func (c *qpCmd) Run(a *app) error {
	return show(&c.viewFlags, a, (*admin.Client).QPs, admin.DeviceOfQP, admin.PrintQPs)
}

// Run shows the memory regions as `rdma resource show mr` does.
func (c *mrCmd) Run(a *app) error {
	return show(&c.viewFlags, a, (*admin.Client).MRs, admin.DeviceOfMR, admin.PrintMRs)
}

// statCmd is `goroced stat`.
type statCmd struct {
	Watch    bool          `short:"w" help:"Go on, and print what was added each time."`
	Interval time.Duration `short:"i" default:"1s" help:"Time between two prints of --watch."`
	viewFlags
}

// Run shows the counters as `rdma statistic` does.
func (c *statCmd) Run(a *app) error {
	client := admin.NewClient(c.Socket)
	var before map[string][]admin.Counter
	for {
		all, err := client.Counters(a.ctx)
		if err != nil {
			return err
		}
		if c.Device != "" {
			all = map[string][]admin.Counter{c.Device: all[c.Device]}
		}
		if c.JSON {
			err = printJSON(a.out, all)
		} else {
			err = admin.PrintCounters(a.out, all, before)
		}
		if err != nil || !c.Watch {
			return err
		}
		before = all
		select {
		case <-time.After(c.Interval):
		case <-a.ctx.Done():
			return nil
		}
	}
}
