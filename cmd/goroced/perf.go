//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/cmd/goroced/internal/perf"
	"github.com/goroce/goroce/ib"
)

// perfCmd is `goroced perf`. Short flags are those of ib_write_bw and the other perftest tools.
type perfCmd struct {
	Op   perfOp     `complete:"send,write,read,atomic,serve" arg:"" help:"send, write, read or atomic; or serve, to take clients one after the other, each with the test and the options that it has."`
	Test *perf.Test `complete:"bw,lat" arg:"" optional:"" help:"bw for bandwidth, lat for latency (not serve)."`
	Host string     `arg:"" optional:"" help:"Host of the server. Without it this end is the server."`

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
	Tx     *int     `theirs:"" name:"tx-depth" short:"t" placeholder:"128" help:"Requests in flight of a queue pair (default 128 for bw, 1 for lat)."`
	Rx     *int     `theirs:"" name:"rx-depth" short:"r" placeholder:"512" help:"Receives to keep posted on a queue pair, send only."`
	CQMod  int      `name:"cq-mod" short:"Q" placeholder:"N" help:"Requests for each completion (default: a quarter of -t, at most 100; 1 above 8 KiB)."`
	List   int      `theirs:"" option:"PostList" name:"post_list" short:"l" placeholder:"N" help:"Requests to post at a time (default: as many as there is room for)."`
	Inline int      `theirs:"" option:"Inline" name:"inline_size" short:"I" placeholder:"BYTES" help:"Messages up to this size are copied into the request."`
	Outs   int      `option:"Outstanding" short:"o" placeholder:"N" help:"READs and atomics in flight of a queue pair (default: as many as the device can)."`
	Events bool     `short:"e" help:"Sleep until completions arrive (not write lat)."`
	Force  bool     `name:"CPU-freq" short:"F" help:"For compatibility: there is no warning to leave out."`
	Gbits  bool     `theirs:"" name:"report_gbits" help:"Bandwidth in Gb/s instead of MiB/s."`
	Stdout bool     `name:"json" xor:"report" help:"Print the report as JSON, and nothing else; serve: one in a line for each test."`
	JSON   jsonFile `name:"out_json" aliases:"out_json_file" xor:"report" help:"Write the report as JSON too, to perftest_out.json, or with --out_json=FILE to FILE; - is standard output, which then has nothing else."`

	Atomic perf.AtomicOp `theirs:"" complete:"FETCH_AND_ADD,CMP_AND_SWAP" name:"atomic_type" short:"A" default:"FETCH_AND_ADD" placeholder:"OP" help:"CMP_AND_SWAP or FETCH_AND_ADD (default ${default})."`

	AckTimeout int           `option:"AckTimeout" name:"qp-timeout" short:"u" default:"14" placeholder:"T" help:"Local ACK timeout, 4.096 us * 2^T (default ${default}; RC)."`
	Retry      int           `option:"RetryCount" name:"retry_count" default:"7" help:"How often a packet is sent again before the peer counts as gone (RC)."`
	Timeout    time.Duration `default:"10s" help:"Longest wait for the peer."`
	Pcap       string        `placeholder:"FILE" type:"path" help:"Capture all packets to a pcapng file."`
	CPUProfile string        `name:"cpuprofile" placeholder:"FILE" type:"path" help:"Write a CPU profile for go tool pprof."`

	servingFlags
	deviceFlags
	faultFlags
}

// perfOp is the operation of a test, or serving.
type perfOp struct {
	perf.Op
	serve bool
}

// UnmarshalText parses a name.
func (o *perfOp) UnmarshalText(text []byte) error {
	if o.serve = string(text) == serving; o.serve {
		return nil
	}
	err := o.Op.UnmarshalText(text)
	var attr *ib.AttrError
	if errors.As(err, &attr) {
		attr.Allowed += ", " + serving
	}
	return err
}

// Help is printed under the flags.
func (*perfCmd) Help() string {
	return "The peer may be perftest's ib_send_bw, ib_write_bw, ib_read_bw, ib_atomic_bw or the ib_*_lat of the same " +
		"operation, on a real device or on rdma_rxe. Without -R it needs -x INDEX (ibv_devinfo -v lists its " +
		"addresses; take a RoCE v2 one that is IPv4 if ours is). Made for perftest 6.06, which is perftest 4.5+0.17 " +
		"in Debian 12. Give the options that are the same at both ends to both; two ends of goroced refuse what does " +
		"not fit. Or run `goroced perf serve` at one end: it takes goroced clients one after the other, and the test " +
		"and the options of each, within its limits. On one machine give each end an " +
		"address of its own: `goroced perf write bw --addr 127.0.0.1` and `goroced perf write bw --addr 127.0.0.2 " +
		"127.0.0.1`."
}

// Run runs the subcommand.
func (c *perfCmd) Run(a *app, parsed *kong.Context) error {
	faults, err := c.faultFlags.config()
	if err != nil {
		return err
	}
	switch {
	case !c.Op.serve && c.Test == nil:
		return &usage{errNoTest, errNoTest.Error() + helpOf(parsed.Selected())}
	case c.Op.serve && c.CM:
		return &usage{errServeCM, errServeCM.Error() + helpOf(parsed.Selected())}
	case c.Op.serve && c.Test != nil:
		return &usage{errTheirs, fmt.Sprintf("%q %v%s", c.Test, errTheirs, helpOf(parsed.Selected()))}
	}
	var limits meet.Limits
	if c.Op.serve {
		if limits, err = c.limits(parsed); err != nil {
			return err
		}
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
		if c.Op.serve {
			return perf.Serve(a.ctx, d, o, limits, func(rep *perf.Report) error { return c.write(a.out, rep) })
		}
		rep, err := perf.Run(a.ctx, d, o)
		if rep == nil {
			return err
		}
		return errors.Join(err, c.write(a.out, rep))
	})
	return errors.Join(err, stop())
}

var (
	errNoTest  = errors.New("expected \"<test>\": bw or lat")
	errServeCM = errors.New("-R is not for serve, which meets its clients over TCP; nor may they have it")
)

// write writes the report where it was asked for.
func (c *perfCmd) write(out io.Writer, rep *perf.Report) error {
	if c.Stdout && c.Op.serve {
		return json.NewEncoder(out).Encode(rep)
	}
	if c.Stdout {
		return stdout.write(out, rep)
	}
	return c.JSON.write(out, rep)
}

// options returns the defaults of the test with the values of the command line.
func (c *perfCmd) options(a *app) perf.Options {
	test := perf.BW
	if c.Test != nil {
		test = *c.Test
	}
	o := perf.Defaults(c.Op.Op, test)
	o.Service, o.Host, o.Port, o.CM = c.Connection, c.Host, c.Port, c.CM
	o.MTU = ib.MTU(c.MTU)
	o.All, o.Duration, o.NumQP, o.Bidirectional = c.All, time.Duration(c.Secs)*time.Second, c.NumQP, c.Bidir
	o.CQMod, o.PostList, o.Inline, o.Outstanding, o.AtomicOp, o.Events = c.CQMod, c.List, c.Inline, c.Outs, c.Atomic,
		c.Events
	o.AckTimeout, o.RetryCount, o.Timeout, o.Gbits = c.AckTimeout, c.Retry, c.Timeout, c.Gbits
	o.Out, o.Log, o.Columns = a.out, a.err, a.columns()
	if c.JSON == stdout || c.Stdout {
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
