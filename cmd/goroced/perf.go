//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/perf"
	"github.com/goroce/goroce/ib"
)

// perfCmd is `goroced perf`. Short flags are those of ib_write_bw and the other perftest tools.
type perfCmd struct {
	Op   perf.Op   `complete:"send,write,read,atomic" arg:"" help:"send, write, read or atomic."`
	Test perf.Test `complete:"bw,lat" arg:"" help:"bw for bandwidth, lat for latency."`
	Host string    `arg:"" optional:"" help:"Host of the server. Without it this end is the server."`

	Connection perf.Service `both:"" complete:"RC,UC,UD" option:"Service" short:"c" default:"RC" placeholder:"C" help:"Transport service: RC, UC (send, write) or UD (send); the same at both ends (default ${default})."`

	Port   int      `short:"p" default:"18515" help:"TCP port of the server; with -R rdma_cm's."`
	GIDIdx gidFlag  `option:"GIDIndex" name:"gid-index" short:"x" default:"-1" placeholder:"N|IP" help:"Local address, or its index, see devinfo -v (default: the one that the way to the peer begins with)."`
	MTU    int      `both:"" complete:"256,512,1024,2048,4096" short:"m" placeholder:"1024" help:"Path MTU (default: the port's); the smaller of both ends' is used."`
	CM     bool     `name:"rdma_cm" short:"R" help:"Meet and connect by rdma_cm, not over TCP; the same at both ends (perftest: not with UC)."`
	Size   *int     `both:"" short:"s" type:"size" placeholder:"65536" help:"Bytes of a message (default 65536 for bw, 2 for lat); the same at both ends."`
	All    bool     `both:"" short:"a" help:"All sizes from 2 to 8 MiB, or to -s, or to a packet with UD; the same at both ends."`
	Iters  *int     `both:"" short:"n" placeholder:"1000" help:"Messages of each queue pair and size (default 5000 for write bw, else 1000); the same at both ends."`
	Secs   int      `both:"" option:"Duration" name:"duration" short:"D" placeholder:"SECONDS" help:"Run for so long instead, and measure the middle half of it; the same at both ends. Of more than 5 s the progress is shown."`
	NumQP  int      `both:"" option:"NumQP" name:"qp" short:"q" default:"1" help:"Queue pairs, bw only; the same at both ends (default ${default})."`
	Bidir  bool     `both:"" name:"bidirectional" short:"b" help:"Both ends send, bw only; the same at both ends."`
	Tx     *int     `name:"tx-depth" short:"t" placeholder:"128" help:"Requests in flight of a queue pair (default 128 for bw, 1 for lat)."`
	Rx     *int     `name:"rx-depth" short:"r" placeholder:"512" help:"Receives to keep posted on a queue pair, send only."`
	CQMod  int      `name:"cq-mod" short:"Q" placeholder:"N" help:"Requests for each completion (default: a quarter of -t, at most 100; 1 above 8 KiB)."`
	List   int      `option:"PostList" name:"post_list" short:"l" placeholder:"N" help:"Requests to post at a time (default: as many as there is room for)."`
	Inline int      `option:"Inline" name:"inline_size" short:"I" placeholder:"BYTES" help:"Messages up to this size are copied into the request."`
	Outs   int      `option:"Outstanding" short:"o" placeholder:"N" help:"READs and atomics in flight of a queue pair (default: as many as the device can)."`
	Events bool     `short:"e" help:"Sleep until completions arrive (not write lat)."`
	Force  bool     `name:"CPU-freq" short:"F" help:"For compatibility: there is no warning to leave out."`
	Gbits  bool     `name:"report_gbits" help:"Bandwidth in Gb/s instead of MiB/s."`
	JSON   jsonFile `name:"out_json" aliases:"out_json_file" help:"Write the report as JSON too, to perftest_out.json, or with --out_json=FILE to FILE; - is standard output, which then has nothing else."`

	Atomic perf.AtomicOp `complete:"FETCH_AND_ADD,CMP_AND_SWAP" name:"atomic_type" short:"A" default:"FETCH_AND_ADD" placeholder:"OP" help:"CMP_AND_SWAP or FETCH_AND_ADD (default ${default})."`

	AckTimeout int           `option:"AckTimeout" name:"qp-timeout" short:"u" default:"14" placeholder:"T" help:"Local ACK timeout, 4.096 us * 2^T (default ${default}; RC)."`
	Retry      int           `option:"RetryCount" name:"retry_count" default:"7" help:"How often a packet is sent again before the peer counts as gone (RC)."`
	Timeout    time.Duration `default:"10s" help:"Longest wait for the peer."`
	Pcap       string        `placeholder:"FILE" type:"path" help:"Capture all packets to a pcapng file."`
	CPUProfile string        `name:"cpuprofile" placeholder:"FILE" type:"path" help:"Write a CPU profile for go tool pprof."`

	deviceFlags
	faultFlags
}

// Help is printed under the flags.
func (*perfCmd) Help() string {
	return "The peer may be perftest's ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw or the ib_*_lat of the same " +
		"operation, on a real device or on rdma_rxe. Without -R it needs -x INDEX (ibv_devinfo -v lists its " +
		"addresses; take a RoCE v2 one that is IPv4 if ours is). Made for perftest 6.06, which is perftest 4.5+0.17 " +
		"in Debian 12. Give the options that are the same at both ends to both. On one machine give each end an " +
		"address of its own: `goroced perf write bw --addr 127.0.0.1` and `goroced perf write bw --addr 127.0.0.2 " +
		"127.0.0.1`."
}

// Run runs the subcommand.
func (c *perfCmd) Run(a *app, parsed *kong.Context) error {
	faults, err := c.faultFlags.config()
	if err != nil {
		return err
	}
	stop, err := profileCPU(c.CPUProfile)
	if err != nil {
		return err
	}
	o := c.options(a)
	o.Both = bothEnds(parsed)
	c.at(&c.GIDIdx)
	c.toward(a.ctx, c.Host, c.GIDIdx.given())
	err = c.with(a.ctx, faults, c.Pcap, func(d ib.Device) (err error) {
		o.Here = c.here(d)
		if o.GIDIndex, err = c.GIDIdx.of(d); err != nil {
			return err
		}
		rep, err := perf.Run(a.ctx, d, o)
		if err != nil {
			return err
		}
		return c.JSON.write(a.out, rep)
	})
	return errors.Join(err, stop())
}

// options returns the defaults of the test with the values of the command line.
func (c *perfCmd) options(a *app) perf.Options {
	o := perf.Defaults(c.Op, c.Test)
	o.Service, o.Host, o.Port, o.CM = c.Connection, c.Host, c.Port, c.CM
	o.MTU = ib.MTU(c.MTU)
	o.All, o.Duration, o.NumQP, o.Bidirectional = c.All, time.Duration(c.Secs)*time.Second, c.NumQP, c.Bidir
	o.CQMod, o.PostList, o.Inline, o.Outstanding, o.AtomicOp, o.Events = c.CQMod, c.List, c.Inline, c.Outs, c.Atomic,
		c.Events
	o.AckTimeout, o.RetryCount, o.Timeout, o.Gbits = c.AckTimeout, c.Retry, c.Timeout, c.Gbits
	o.Out, o.Log, o.Columns = a.out, a.err, a.columns()
	if c.JSON == stdout {
		o.Out = io.Discard
	}
	if c.All {
		o.Size = 0
	}
	for _, f := range []struct{ flag, option *int }{{c.Size, &o.Size}, {c.Iters, &o.Iters}, {c.Tx, &o.TxDepth},
		{c.Rx, &o.RxDepth}} {
		if f.flag != nil {
			*f.option = *f.flag
		}
	}
	return o
}

// jsonFile is a flag with the name of a JSON file. Its value is optional.
type jsonFile string

const (
	stdout      jsonFile = "-"
	defaultJSON jsonFile = "perftest_out.json"
)

// IsBool tells kong that the flag needs no value.
func (*jsonFile) IsBool() bool { return true }

// Decode decodes the value of --out_json=FILE, which kong has put first.
func (f *jsonFile) Decode(ctx *kong.DecodeContext) error {
	*f = defaultJSON
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		*f = jsonFile(fmt.Sprint(ctx.Scan.Pop().Value))
	}
	return nil
}

func (f jsonFile) write(out io.Writer, rep *perf.Report) error {
	switch f {
	case "":
		return nil
	case stdout:
		return rep.WriteJSON(out)
	}
	file, err := os.Create(string(f))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return errors.Join(rep.WriteJSON(file), file.Close())
}

// profileCPU starts a CPU profile if a file is named. stop ends it.
func profileCPU(name string) (stop func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("CPU profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
