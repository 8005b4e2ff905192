//go:build linux

package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// viewFlags are the flags of subcommands that show the state of a running daemon.
type viewFlags struct {
	JSON bool `help:"Print JSON."`
	adminFlags
}

// show prints what get returns: everything, or what belongs to --device.
func show[T any](f *viewFlags, a *app, get func(*admin.Client, context.Context) ([]T, error), device func(*T) string,
	text func(io.Writer, term.Terminal, []T) error) error {
	client, err := f.client(a)
	if err != nil {
		return err
	}
	list, err := get(client, a.ctx)
	if err != nil {
		return err
	}
	if f.Device != "" {
		list = slices.DeleteFunc(list, func(v T) bool { return device(&v) != f.Device })
	}
	if f.JSON {
		return printJSON(a.out, list)
	}
	return text(a.out, a.term, list)
}

// client returns a client of the daemon's admin socket. If --device is set, the daemon must have that device.
func (f *viewFlags) client(a *app) (*admin.Client, error) {
	client := admin.NewClient(f.Socket)
	if f.Device == "" {
		return client, nil
	}
	list, err := client.Devices(a.ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	if !slices.Contains(names, f.Device) {
		return nil, driver.Refuse("show", "--device", f.Device, strings.Join(names, ", "), ib.ErrInvalid)
	}
	return client, nil
}

type (
	devicesCmd struct{ viewFlags }
	statusCmd  struct{ viewFlags }
	qpCmd      struct{ viewFlags }
	mrCmd      struct{ viewFlags }
	cmCmd      struct{ viewFlags }
)

func nameOfDevice(d *admin.Device) string { return d.Name }

// Run lists the daemon's devices as ibv_devices does.
func (c *devicesCmd) Run(a *app) error {
	return show(&c.viewFlags, a, (*admin.Client).Devices, nameOfDevice, admin.PrintDevices)
}

// Run shows the ports as `rdma link` does. It fails if the daemon answers but does not go on.
func (c *statusCmd) Run(a *app) error {
	if err := c.show(a); err != nil {
		return err
	}
	return admin.NewClient(c.Socket).Health(a.ctx)
}

func (c *statusCmd) show(a *app) error {
	if c.JSON && c.Device == "" {
		status, err := admin.NewClient(c.Socket).Status(a.ctx)
		if err != nil {
			return err
		}
		return printJSON(a.out, status)
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

// Run shows the IDs of the connection manager as `rdma resource show cm_id` does.
func (c *cmCmd) Run(a *app) error {
	return show(&c.viewFlags, a, (*admin.Client).CMIDs, admin.DeviceOfCMID, admin.PrintCMIDs)
}

// statCmd is `goroced stat`.
type statCmd struct {
	Watch    bool          `short:"w" help:"Repeat, and print the increase each time; the first time, since the device was opened. On a terminal: a table of what is not zero."`
	Interval time.Duration `short:"i" default:"1s" help:"Interval of --watch."`
	viewFlags
}

// Run shows the counters as `rdma statistic` does.
func (c *statCmd) Run(a *app) error {
	if c.Interval <= 0 {
		return driver.Refuse("stat", "--interval", c.Interval, "more than 0", ib.ErrInvalid)
	}
	client, err := c.client(a)
	if err != nil {
		return err
	}
	for before := map[string]admin.Counters(nil); ; {
		all, err := client.Counters(a.ctx)
		if err == nil {
			maps.DeleteFunc(all, func(name string, _ admin.Counters) bool { return c.Device != "" && name != c.Device })
			err = c.print(a, all, before)
		}
		switch {
		case c.Watch && a.ctx.Err() != nil:
			return nil // interrupted: the usual end
		case err != nil || !c.Watch:
			return err
		}
		before = all
		select {
		case <-time.After(c.Interval):
		case <-a.ctx.Done():
		}
	}
}

func (c *statCmd) print(a *app, all, before map[string]admin.Counters) error {
	added := map[string]admin.Counters{}
	for name, counters := range all {
		added[name] = counters.Since(before[name])
	}
	switch {
	case c.JSON && c.Watch:
		return json.NewEncoder(a.out).Encode(added) // one object on each line
	case c.JSON:
		return printJSON(a.out, added)
	case c.Watch && a.term.Real:
		return admin.PrintChange(a.out, all, added, c.Interval)
	}
	return admin.PrintCounters(a.out, a.term, added)
}
