//go:build linux

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/device"
	"github.com/goroce/goroce/cmd/goroced/internal/rstream"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// rstreamCmd is `goroced rstream`. Short flags are those of librdmacm's rstream and
// riostream.
type rstreamCmd struct {
	Server string `short:"s" placeholder:"HOST" help:"Host of the server. Without it this end is the server."`
	Bind   string `short:"b" placeholder:"ADDR" help:"Local address to listen on (default: all of the device) or to connect from."`
	Format string `short:"f" default:"name" placeholder:"F" help:"What -s and -b are: name (default), ip or ipv6."`
	Port   int    `short:"p" default:"7471" help:"rdma_cm port of the server; a server with 0 chooses a free one."`
	IOMap  bool   `name:"iomap" help:"Be riostream: write directly into memory that the peer has mapped."`

	Iterations *int     `short:"I" placeholder:"1" help:"One test of this many iterations instead of the series."`
	Transfers  *int     `short:"C" placeholder:"1000" help:"One test of this many transfers in an iteration instead of the series."`
	Size       string   `short:"S" placeholder:"1000" help:"One test of transfers of this many bytes instead of the series; or \"all\": the series with 33 sizes, 64 bytes to 6 MiB."`
	Test       []string `short:"T" sep:"none" placeholder:"OPT" help:"v or verify checks the data. a or async, b or blocking, n or nonblocking and r or resolve have no effect here. May be repeated."`

	Buffer    int `short:"B" type:"size" default:"524288" help:"Size of the send buffer and of the receive buffer in bytes."`
	Inline    int `short:"i" placeholder:"64" help:"Largest size in bytes that is sent inline."`
	KeepAlive int `short:"k" placeholder:"15" help:"Seconds without traffic until a keepalive message is sent."`

	Timeout    time.Duration `default:"10s" help:"Longest wait for the peer. A server waits for its client without limit."`
	AckTimeout int           `name:"ack-timeout" placeholder:"T" help:"Local ACK timeout of both ends, 4.096 us * 2^T (client; default 16). With --drop, 10 to 12 is faster."`
	MTU        int           `placeholder:"BYTES" help:"Largest path MTU to ask for, at a server to accept: 256, 512, 1024, 2048 or 4096 (default: what the port and the route to the peer carry)."`
	Pcap       string        `placeholder:"FILE" type:"path" help:"Capture all packets to a pcapng file."`

	cmDeviceFlags
	faultFlags

	options rstream.Options
}

// Help is printed under the flags.
func (*rstreamCmd) Help() string {
	return "Streams data back and forth over rsockets and reports latency and bandwidth. The peer may be librdmacm's " +
		"rstream, or riostream with --iomap, on a real device or on rdma_rxe. -I, -C, -S and -T v have to be the " +
		"same at both ends, because they are not transmitted. The series are latency tests and bandwidth tests of 64 " +
		"bytes, 4 KiB, 64 KiB and 1 MiB. On one machine give each end an address of its own: `goroced rstream -b " +
		"127.0.0.1 -S all` and `goroced rstream -s 127.0.0.1 -b 127.0.0.2 -S all`."
}

// Validate is called by kong when the command line is parsed.
func (c *rstreamCmd) Validate() error {
	o := rstream.Defaults()
	o.Server, o.Bind, o.Port, o.IOMap = c.Server, c.Bind, c.Port, c.IOMap
	o.Buffer, o.Inline, o.KeepAlive = c.Buffer, c.Inline, time.Duration(c.KeepAlive)*time.Second
	o.AckTimeout, o.MTU, o.Timeout = c.AckTimeout, ib.MTU(c.MTU), c.Timeout
	switch format := strings.ToLower(c.Format); {
	case strings.HasPrefix(format, "ip"):
		o.Numeric = true
	case format == "gid":
		return fmt.Errorf("-f gid is %w by goroced: it names IB addresses; RoCE has IP addresses", ib.ErrNotSupported)
	case format != "name":
		return driver.Refuse("rstream", "-f", c.Format, "name, ip, ipv6", ib.ErrInvalid)
	}
	if c.Iterations != nil {
		o.Custom, o.Iterations = true, *c.Iterations
	}
	if c.Transfers != nil {
		o.Custom, o.Transfers = true, *c.Transfers
	}
	if strings.HasPrefix(strings.ToLower(c.Size), "all") {
		o.AllSizes = true
	} else if c.Size != "" {
		size, err := strconv.Atoi(c.Size)
		if err != nil {
			return driver.Refuse("rstream", "-S", c.Size, fmt.Sprintf("1 to %d, or all", rstream.MaxSize),
				ib.ErrInvalid)
		}
		o.Custom, o.Size = true, size
	}
	for _, test := range c.Test {
		if err := o.SetTest(test); err != nil {
			return err
		}
	}
	c.options = o
	return nil
}

// Run runs the subcommand.
func (c *rstreamCmd) Run(a *app) error {
	faults, err := c.faultFlags.config()
	if err != nil {
		return err
	}
	c.options.Out, c.options.Log = a.out, a.err
	return c.with(a.ctx, c.Bind, c.Server, faults, c.Pcap, func(d ib.Device, here device.Here) error {
		c.options.Here = here
		return rstream.Run(a.ctx, d, c.options)
	})
}
