//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/cmd/goroced/internal/pingpong"
	"github.com/goroce/goroce/ib"
)

// pingpongCmd is `goroced pingpong`. Short flags are those of ibv_rc_pingpong and the other ping-pongs of libibverbs.
type pingpongCmd struct {
	Host string `complete:"serve" arg:"" optional:"" help:"Host of the server. Without it this end is the server; serve is one that takes clients one after the other, each with the options that it has."`

	Service pingpong.Service `theirs:"" complete:"rc,uc,ud,srq" default:"rc" placeholder:"S" help:"Transport service: rc, uc, ud, or srq, which is RC on a shared receive queue (default ${default}); the same at both ends."`

	Port    int     `short:"p" default:"18515" help:"TCP port of the server."`
	IBPort  int     `name:"ib-port" short:"i" default:"1" help:"Port of the device: 1."`
	Size    *int    `both:"" short:"s" type:"size" placeholder:"4096" help:"Bytes of a message; the same at both ends (ud: default 1024, and at most what a packet carries)."`
	MTU     *int    `both:"" complete:"256,512,1024,2048,4096" short:"m" placeholder:"1024" help:"Path MTU; the same at both ends (not ud)."`
	NumQP   *int    `both:"" name:"num-qp" short:"q" placeholder:"16" help:"Queue pairs; the same at both ends (srq only)."`
	RxDepth int     `name:"rx-depth" short:"r" default:"500" help:"Receives to keep posted."`
	Iters   int     `both:"" short:"n" default:"1000" help:"Messages each way, all queue pairs together."`
	SL      int     `option:"SL" short:"l" help:"Service level; for compatibility, RoCEv2 has no place for it."`
	Events  bool    `short:"e" help:"Sleep until completions arrive."`
	GIDIdx  gidFlag `option:"GIDIndex" name:"gid-idx" short:"g" default:"-1" placeholder:"N|IP" help:"Local address, or its index, see devinfo -v (default: the one that the TCP connection uses)."`
	Check   bool    `both:"" name:"chk" short:"c" help:"Check the data; give it at both ends."`

	Timeout    time.Duration `default:"10s" help:"Longest wait for the peer."`
	AckTimeout int           `name:"ack-timeout" default:"14" placeholder:"T" help:"Local ACK timeout, 4.096 us * 2^T (default ${default}; rc and srq). With --drop, 10 to 12 is faster."`
	Retry      int           `option:"RetryCount" default:"7" help:"How often a packet is sent again before the peer counts as gone (rc and srq)."`
	Pcap       string        `placeholder:"FILE" type:"path" help:"Capture all packets to a pcapng file."`

	servingFlags
	deviceFlags
	faultFlags
	refusedFlags
}

// refusedFlags are options of ibv_rc_pingpong that goroced does not support.
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
		{f.ODP, "-o", "a software device pages all memory on demand"},
		{f.ImplicitODP, "-O", "a software device pages all memory on demand"},
		{f.Prefetch, "-P", "a software device pages all memory on demand"},
		{f.Timestamps, "-t", "there are no hardware timestamps"},
		{f.DeviceMemory, "-j", "messages lie in this program's memory"},
		{f.NewSend, "-N", "there is one way to post"},
		{f.ParentDomain, "-U", "there are no parent domains"},
	} {
		if r.given {
			return fmt.Errorf("%s is %w by goroced: %s; leave it out, the peer may use it", r.flag, ib.ErrNotSupported,
				r.why)
		}
	}
	return nil
}

// Help is printed under the flags.
func (*pingpongCmd) Help() string {
	return "The peer may be rdma-core's ibv_rc_pingpong, or ibv_uc_, ibv_ud_ or ibv_srq_pingpong with that " +
		"--service, on a real device or on rdma_rxe; it needs -g INDEX (ibv_devinfo -v lists its addresses; take a " +
		"RoCE v2 one that is IPv4 if ours is). Two ends of goroced refuse options that do not fit. Or run `goroced " +
		"pingpong serve` at one end: it takes goroced clients one after the other, and the options of each, within " +
		"its limits. On one machine give each end an address of its own: `goroced pingpong " +
		"--addr 127.0.0.1` and `goroced pingpong --addr 127.0.0.2 127.0.0.1`."
}

// Validate is called by kong when the command line is parsed.
func (c *pingpongCmd) Validate() error { return c.refusedFlags.check() }

// Run runs the subcommand.
func (c *pingpongCmd) Run(a *app, parsed *kong.Context) error {
	faults, err := c.faultFlags.config()
	if err != nil {
		return err
	}
	var limits meet.Limits
	serve := c.Host == serving
	if serve {
		if limits, err = c.limits(parsed); err != nil {
			return err
		}
		c.Host = ""
	}
	c.at(&c.GIDIdx)
	c.toward(a.ctx, c.Host, c.GIDIdx.given())
	return c.with(a.ctx, faults, c.Pcap, func(d ib.Device) (err error) {
		o := c.options(a)
		if o.GIDIndex, err = c.GIDIdx.of(d); err != nil {
			return err
		}
		o.Both = bothEnds(parsed)
		o.Here = c.here(d)
		if serve {
			return pingpong.Serve(a.ctx, d, o, limits)
		}
		_, err = pingpong.Run(a.ctx, d, o)
		return err
	})
}

// options returns the defaults of the service with the values of the command line.
func (c *pingpongCmd) options(a *app) pingpong.Options {
	o := pingpong.Defaults(c.Service)
	o.Host, o.Port, o.IBPort = c.Host, c.Port, c.IBPort
	o.RxDepth, o.Iters, o.SL, o.Events, o.Check = c.RxDepth, c.Iters, c.SL, c.Events, c.Check
	o.AckTimeout, o.RetryCount, o.Timeout = c.AckTimeout, c.Retry, c.Timeout
	o.Out, o.Log, o.Columns = a.out, a.err, a.columns()
	if c.Size != nil {
		o.Size = *c.Size
	}
	if c.MTU != nil {
		o.MTU = ib.MTU(*c.MTU)
	}
	if c.NumQP != nil {
		o.NumQP = *c.NumQP
	}
	return o
}
