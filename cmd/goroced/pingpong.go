package main

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/tools/pingpong"
)

// pingpongCmd is `goroced pingpong`. Short flags are those of ibv_rc_pingpong.
type pingpongCmd struct {
	Host string `arg:"" optional:"" help:"Where the server is. Without it this end is the server."`

	Port    int  `short:"p" default:"18515" help:"TCP port of the server."`
	IBPort  int  `name:"ib-port" short:"i" default:"1" help:"Port of the device: 1."`
	Size    int  `short:"s" default:"4096" help:"Bytes of a message."`
	MTU     int  `short:"m" default:"1024" help:"Path MTU; the same at both ends."`
	RxDepth int  `name:"rx-depth" short:"r" default:"500" help:"Receives to keep posted."`
	Iters   int  `short:"n" default:"1000" help:"Messages each way."`
	SL      int  `short:"l" help:"Service level; for compatibility, RoCEv2 has no place for it."`
	Events  bool `short:"e" help:"Sleep until completions arrive."`
	GIDIdx  int  `name:"gid-idx" short:"g" default:"-1" placeholder:"N" help:"Local address by its index, see devinfo -v (default: the one that the TCP connection uses)."`
	Check   bool `name:"chk" short:"c" help:"Check the data; give it at both ends."`

	Timeout    time.Duration `default:"10s" help:"Longest wait for the peer."`
	AckTimeout int           `name:"ack-timeout" default:"14" placeholder:"T" help:"Local ACK timeout, 4.096 us * 2^T (default ${default}). With --drop, 10 to 12 is quicker."`
	Retry      int           `default:"7" help:"How often a packet is sent again before the peer counts as gone."`
	Pcap       string        `placeholder:"FILE" type:"path" help:"Capture all packets to a pcapng file."`

	deviceFlags
	faultFlags
	refusedFlags
}

// refusedFlags are options of ibv_rc_pingpong that need what we do not have.
type refusedFlags struct {
	ODP          bool `short:"o" hidden:""`
	ImplicitODP  bool `name:"iodp" short:"O" hidden:""`
	Prefetch     bool `short:"P" hidden:""`
	Timestamps   bool `name:"ts" short:"t" hidden:""`
	DeviceMemory bool `name:"dm" short:"j" hidden:""`
	NewSend      bool `name:"new_send" short:"N" hidden:""`
	ParentDomain bool `name:"parent-domain" short:"U" hidden:""`
}

func (f *refusedFlags) check() error {
	for _, r := range []struct {
		given     bool
		flag, why string
	}{
		{f.ODP, "-o", "all memory is paged on demand by the kernel anyway"},
		{f.ImplicitODP, "-O", "all memory is paged on demand by the kernel anyway"},
		{f.Prefetch, "-P", "all memory is paged on demand by the kernel anyway"},
		{f.Timestamps, "-t", "there are no hardware timestamps"},
		{f.DeviceMemory, "-j", "there is no memory on a device"},
		{f.NewSend, "-N", "there is one way to post"},
		{f.ParentDomain, "-U", "there are no parent domains"},
	} {
		if r.given {
			return fmt.Errorf("%s is %w by a software device: %s; leave it out, the peer may use it", r.flag, ib.ErrNotSupported, r.why)
		}
	}
	return nil
}

// Help is printed under the flags.
func (*pingpongCmd) Help() string {
	return "The peer may be rdma-core's ibv_rc_pingpong on a real device or on rdma_rxe; it needs -g INDEX (ibv_devinfo -v lists " +
		"its addresses; take a RoCE v2 one that is IPv4 if ours is). On one machine give each end an address of its own: " +
		"`goroced pingpong --addr 127.0.0.1` and `goroced pingpong --addr 127.0.0.2 127.0.0.1`."
}

// Validate is called when the command line was parsed.
func (c *pingpongCmd) Validate() error { return c.refusedFlags.check() }

// Run runs the subcommand.
func (c *pingpongCmd) Run(a *app) error {
	dev, err := c.deviceFlags.options()
	if err != nil {
		return err
	}
	if dev.Fault, err = c.faultFlags.config(); err != nil {
		return err
	}
	o := pingpong.Options{
		Host: c.Host, Port: c.Port, IBPort: c.IBPort, GIDIndex: c.GIDIdx, Size: c.Size, MTU: ib.MTU(c.MTU), RxDepth: c.RxDepth,
		Iters: c.Iters, SL: c.SL, Events: c.Events, Check: c.Check, AckTimeout: c.AckTimeout, RetryCount: c.Retry, Timeout: c.Timeout,
		Out: a.out, Log: a.err,
	}
	return withDevice(dev, c.Pcap, func(d *roce.Device) error {
		_, err := pingpong.Run(a.ctx, d, o)
		return err
	})
}
