package main

import (
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/tools/device"
	"github.com/goroce/goroce/roce/tools/devinfo"
)

// devinfoCmd is `goroced devinfo`.
type devinfoCmd struct {
	Verbose bool `short:"v" help:"Add limits, addresses (GIDs), and what the link is like."`
	List    bool `short:"l" help:"Only list the devices that could be opened."`
	deviceFlags
}

// Run runs the subcommand.
func (c *devinfoCmd) Run(a *app) error {
	if c.List {
		list, err := host.Interfaces()
		if err != nil {
			return err
		}
		rnics, err := device.RNICs()
		if err != nil {
			return err
		}
		return devinfo.List(a.out, list, rnics)
	}
	return c.with(a.ctx, wrap.FaultConfig{}, "", func(d ib.Device) error { return devinfo.Write(a.out, d, c.Verbose) })
}
