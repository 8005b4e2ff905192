//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/rping"
	"github.com/goroce/goroce/ib"
)

// rpingCmd is `goroced rping`. Short flags are those of librdmacm's rping.
type rpingCmd struct {
	Server bool `short:"s" xor:"role" help:"Be the server."`
	Client bool `short:"c" xor:"role" help:"Be the client."`

	Address    string     `option:"Addr" short:"a" placeholder:"HOST" help:"Host of the server; at the server, the address to listen on (default: all of the device)."`
	Source     netip.Addr `short:"I" placeholder:"IP" help:"Source address (client)."`
	Port       int        `short:"p" default:"7174" help:"rdma_cm port of the server; a server with 0 chooses a free one."`
	Count      int        `short:"C" placeholder:"N" help:"Pings; 0, the default, goes on until interrupted (client)."`
	Size       int        `short:"S" type:"size" default:"64" help:"Bytes of a ping, 1 to 65536 (client; goroced's server takes any size, that of librdmacm needs the same -S, 23 to 65535)."`
	Verbose    bool       `short:"v" help:"Print the text of each ping."`
	Check      bool       `name:"validate" short:"V" help:"Check that each text returns as it was (client)."`
	Debug      bool       `short:"d" help:"Log each step."`
	Persistent bool       `short:"P" help:"Serve clients, many at once, until interrupted (server)."`
	OwnQP      bool       `name:"self-create-qp" short:"q" help:"For compatibility; it makes no difference here."`

	Timeout    time.Duration `default:"10s" help:"Longest wait for the peer. A server waits for its clients without limit."`
	AckTimeout int           `name:"ack-timeout" placeholder:"T" help:"Local ACK timeout of both ends, 4.096 us * 2^T (client; default 16). With --drop, 10 to 12 is faster."`
	MTU        int           `placeholder:"BYTES" help:"Largest path MTU to ask for, at a server to accept: 256, 512, 1024, 2048 or 4096 (default: what the port and the route to the peer carry)."`
	Pcap       string        `placeholder:"FILE" type:"path" help:"Capture all packets to a pcapng file."`

	cmDeviceFlags
	faultFlags
}

// Help is printed under the flags.
func (*rpingCmd) Help() string {
	return "The peer may be librdmacm's rping, on a real device or on rdma_rxe: the messages are the same. The " +
		"client has a text READ by the server and written back, and a server without -P ends when its client does. " +
		"On one machine give each end an address of its own: `goroced rping -s -a 127.0.0.1` and `goroced rping -c " +
		"-a 127.0.0.1 -I 127.0.0.2 -C 5 -v -V`."
}

// Validate is called by kong when the command line is parsed.
func (c *rpingCmd) Validate() error {
	if !c.Server && !c.Client {
		return fmt.Errorf("%w: neither -s nor -c is given: be the server or the client?", ib.ErrInvalid)
	}
	return nil
}

// Run runs the subcommand.
func (c *rpingCmd) Run(a *app) error {
	faults, err := c.faultFlags.config()
	if err != nil {
		return err
	}
	local, remote := c.Address, ""
	if c.Client {
		local, remote = "", c.Address
		if c.Source.IsValid() {
			local = c.Source.String()
		}
	}
	return c.with(a.ctx, local, remote, faults, c.Pcap, func(d ib.Device, here device.Here) error {
		o := c.options(a)
		o.Here = here
		return rping.Run(a.ctx, d, o)
	})
}

func (c *rpingCmd) options(a *app) rping.Options {
	return rping.Options{
		Server: c.Server, Addr: c.Address, Port: c.Port, Source: c.Source, Count: c.Count, Size: c.Size,
		Verbose: c.Verbose, Validate: c.Check, Debug: c.Debug, Persistent: c.Persistent,
		AckTimeout: c.AckTimeout, MTU: ib.MTU(c.MTU), Timeout: c.Timeout, Out: a.out, Log: a.err,
		Columns: a.columns(),
	}
}
