//go:build linux

package main

import (
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/cmd/goroced/internal/doctor"
)

// doctorCmd is `goroced doctor`.
type doctorCmd struct {
	Peer  string       `arg:"" optional:"" help:"Host to communicate with, by name or address: also check the route to it."`
	NetIf string       `name:"netif" placeholder:"IF" help:"Network interface to check (default: that of the route to the peer, or of the default route)."`
	Addr  []netip.Addr `placeholder:"IP" help:"Local addresses to check instead of --netif."`
	JSON  bool         `help:"Print a JSON object."`
}

// Run runs the subcommand.
func (c *doctorCmd) Run(a *app) error {
	o := doctor.Options{NetIf: c.NetIf, Addrs: c.Addr}
	if c.Peer != "" {
		var err error
		if o.Peer, err = doctor.Resolve(a.ctx, c.Peer, o); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
	}
	report, err := doctor.Examine(o)
	if err != nil {
		return err
	}
	if c.JSON {
		err = report.WriteJSON(a.out)
	} else {
		err = report.Write(a.out, a.term)
	}
	if err != nil {
		return err
	}
	if n := report.Count(doctor.Fail); n > 0 {
		return fmt.Errorf("doctor: %d of %d findings keep RDMA from working", n, len(report.Findings))
	}
	return nil
}
