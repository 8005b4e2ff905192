package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/goroce/cmd/goroced/internal/demo"
	"github.com/goroce/goroce/ib"
)

// demoCmd is `goroced demo`.
type demoCmd struct {
	MTU    int        `default:"1024" help:"Path MTU: 256, 512, 1024, 2048 or 4096 bytes."`
	Pcap   string     `placeholder:"FILE" type:"path" help:"Capture the packets of the tour to a pcapng file."`
	Client netip.Addr `placeholder:"IP" help:"The client's address (default: 127.0.0.1)."`
	Server netip.Addr `placeholder:"IP" help:"The server's address (default: 127.0.0.2)."`
	JSON   bool       `help:"Print JSON."`
	Memory bool       `help:"Connect the hosts by a network in memory, not by UDP sockets. Only Linux has the sockets."`
	demoDaemon
	faultFlags
	screenFlags
}

// Help is printed under the flags.
func (*demoCmd) Help() string {
	return "Needs no RDMA hardware and no privilege. Try it again with --drop 0.05: it shows lost packets, and how " +
		"the protocol recovers. --pcap writes a file for Wireshark or `goroced decode`. With --daemon the " +
		"hosts are two clients of a running daemon; users who may not capture there see no packets."
}

// named reports whether the flags ask for what only devices of this program can have.
func (c *demoCmd) named() bool {
	return c.Client.IsValid() || c.Server.IsValid() || c.Drop != 0 || c.Memory || c.Pcap != ""
}

// Run runs the subcommand.
func (c *demoCmd) Run(a *app) (err error) {
	o := demo.Options{Client: c.Client, Server: c.Server, MTU: ib.MTU(c.MTU), Drop: c.Drop, Seed: c.Seed,
		Memory: c.Memory, Daemon: c.demoDaemon.options()}
	capture, err := createCapture(c.Pcap)
	if err != nil {
		return err
	}
	if capture != nil {
		o.Pcap = capture
		defer func() { err = errors.Join(err, capture.Close()) }()
	}
	rep, err := demo.Run(a.ctx, o)
	if o.Daemon == nil && !c.named() {
		if o.Daemon = c.instead(a.ctx, err); o.Daemon != nil {
			rep, err = demo.Run(a.ctx, o)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("demo: %w", err)
	case c.JSON:
		return rep.WriteJSON(a.out)
	}
	if err := rep.WriteText(a.out, c.terminal(a)); err != nil {
		return err
	}
	if capture != nil {
		text := fmt.Sprintf("The tour's packets, as the client saw them, are in %s.", c.Pcap)
		fmt.Fprintf(a.out, "\n%s\n", c.terminal(a).Hang("", text))
	}
	return nil
}
