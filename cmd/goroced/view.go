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
	mrCmd      struct{ viewFlags }
	cmCmd      struct{ viewFlags }
)

func nameOfDevice(d *admin.Device) string { return d.Name }

// Run lists the daemon's devices as ibv_devices does.
func (c *devicesCmd) Run(a *app) error {
	return show(&c.viewFlags, a, (*admin.Client).Devices, nameOfDevice, admin.PrintDevices)
}

// watchFlags repeat a view.
type watchFlags struct {
	Watch    bool          `short:"w" help:"Repeat, with what the interval has added; with --json an object on each line."`
	Interval time.Duration `short:"i" default:"1s" help:"Interval of --watch."`
}

// repeat shows a view once, or until it is interrupted. With screen each one begins a new screen.
func (f *watchFlags) repeat(a *app, screen bool, show func() error) error {
	if f.Interval <= 0 {
		return driver.Refuse("watch", "--interval", f.Interval, "more than 0", ib.ErrInvalid)
	}
	if !f.Watch {
		return show()
	}
	for {
		var err error
		if screen {
			err = admin.NextScreen(a.out, a.term)
		}
		if err == nil {
			err = show()
		}
		if a.ctx.Err() != nil {
			return nil // interrupted: the usual end
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(f.Interval):
		case <-a.ctx.Done():
		}
	}
}

// statusCmd is `goroced status`.
type statusCmd struct {
	RDMA bool `name:"rdma" help:"Print the ports as rdma link does."`
	watchFlags
	viewFlags
}

// Run shows how the daemon and its devices are. It fails if the daemon answers but does not go on.
func (c *statusCmd) Run(a *app) error {
	client, err := c.client(a)
	if err != nil {
		return err
	}
	var before *admin.Status
	return c.repeat(a, !c.JSON && !c.RDMA, func() error {
		s, err := client.Status(a.ctx)
		if err != nil {
			return err
		}
		other := func(d admin.Device) bool { return c.Device != "" && d.Name != c.Device }
		s.Devices = slices.DeleteFunc(s.Devices, other)
		if err := c.print(a, &s, before); err != nil {
			return err
		}
		if before = &s; c.Watch {
			return nil
		}
		return client.Health(a.ctx)
	})
}

func (c *statusCmd) print(a *app, s, before *admin.Status) error {
	switch {
	case c.JSON && c.Watch:
		return json.NewEncoder(a.out).Encode(s) // one object on each line
	case c.JSON:
		return printJSON(a.out, s)
	case c.RDMA:
		return admin.PrintLinks(a.out, a.term, s.Devices)
	}
	return admin.PrintStatus(a.out, a.term, s, before)
}

// qpCmd is `goroced qp`.
type qpCmd struct {
	Stats bool `help:"Also print what each queue pair has sent and received, and its congestion window, pace and round trip."`
	viewFlags
}

// Run shows the queue pairs as `rdma resource show qp` does.
func (c *qpCmd) Run(a *app) error {
	text := admin.PrintQPs
	if c.Stats {
		text = admin.PrintQPStats
	}
	return show(&c.viewFlags, a, (*admin.Client).QPs, admin.DeviceOfQP, text)
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
	RDMA bool `name:"rdma" help:"Print all counters as rdma statistic does; with --watch, their increase."`
	watchFlags
	viewFlags
}

// Run shows the counters.
func (c *statCmd) Run(a *app) error {
	client, err := c.client(a)
	if err != nil {
		return err
	}
	var before map[string]admin.Counters
	return c.repeat(a, !c.JSON && !c.RDMA, func() error {
		all, err := client.Counters(a.ctx)
		if err != nil {
			return err
		}
		maps.DeleteFunc(all, func(name string, _ admin.Counters) bool { return c.Device != "" && name != c.Device })
		err = c.print(a, all, before)
		before = all
		return err
	})
}

func (c *statCmd) print(a *app, all, before map[string]admin.Counters) error {
	increase := map[string]admin.Counters{} // the first time, since the device was opened
	for name, counters := range all {
		increase[name] = counters.Since(before[name])
	}
	switch {
	case c.JSON && c.Watch:
		return json.NewEncoder(a.out).Encode(increase) // one object on each line
	case c.JSON:
		return printJSON(a.out, all)
	case c.RDMA:
		return admin.PrintCounters(a.out, a.term, increase)
	}
	if before == nil {
		increase = nil
	}
	return admin.PrintStats(a.out, a.term, all, increase, c.Interval)
}
