//go:build linux

package main

import (
	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/devinfo"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
)

// devinfoCmd is `goroced devinfo`.
type devinfoCmd struct {
	Verbose bool `short:"v" help:"Add limits, addresses (GIDs), and what the link is like."`
	List    bool `short:"l" help:"Only list the devices that could be opened."`
	JSON    bool `help:"Print a list of JSON objects, verbose always."`
	deviceFlags
}

// Run runs the subcommand.
func (c *devinfoCmd) Run(a *app) error {
	var found []devinfo.Found
	var err error
	if c.List || c.asked() && c.Device == device.Soft {
		if found, err = c.find(a); err != nil {
			return err
		}
	}
	if c.List && c.JSON {
		return printJSON(a.out, found)
	}
	if c.List {
		return devinfo.List(a.out, found)
	}
	if found == nil {
		found = []devinfo.Found{{Name: c.Device}}
	}
	all := []*devinfo.Info{}
	for _, f := range found {
		c.Device = f.Name
		err := c.with(a.ctx, wrap.FaultConfig{}, "", func(d ib.Device) error {
			if !c.JSON {
				return devinfo.Write(a.out, d, c.Verbose)
			}
			info, err := devinfo.Describe(d)
			all = append(all, info)
			return err
		})
		if err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(a.out, all)
	}
	return nil
}

// find returns the daemon's devices, or those that this program could open.
func (c *devinfoCmd) find(a *app) ([]devinfo.Found, error) {
	if c.asked() {
		conn, err := socket.Dial(socket.Client, c.Socket)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		g, err := socket.Greet(a.ctx, conn)
		return devinfo.Named(g.Devices), err
	}
	list, err := host.Interfaces()
	if err != nil {
		return nil, err
	}
	rnics, err := device.RNICs()
	return append(devinfo.Software(list), devinfo.Named(rnics)...), err
}
