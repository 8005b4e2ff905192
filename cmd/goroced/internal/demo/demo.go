package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link/mem"
)

// ErrData: received bytes differ from those that were sent.
var ErrData = errors.New("data differ")

// Options of Run. The zero value is ready.
type Options struct {
	// Daemon, if not nil, makes the hosts clients of a daemon. Client, Server, Drop and Pcap must not be set then.
	Daemon *Daemon
	// Memory connects the hosts by a network in memory, not by UDP sockets. Only Linux has the sockets: elsewhere it is
	// always set.
	Memory bool
	// Client and Server are the addresses of the hosts, by default 127.0.0.1 and 127.0.0.2. Without Memory both must
	// be addresses of this machine.
	Client, Server netip.Addr
	// MTU is the path MTU, by default 1024.
	MTU ib.MTU
	// Drop is the probability with which each host drops a packet that it sends. Seed makes the drops repeatable as far
	// as timing allows.
	Drop float64
	Seed uint64
	// Pcap receives a pcapng capture of the tour as seen by the client, with some bulk traffic at the end. It is
	// complete when Run returns.
	Pcap io.Writer
	// Measure is the duration of the bandwidth measurement, by default a second; that of latency takes a third of it.
	Measure time.Duration

	network *mem.Network // with Memory
}

// MaxDrop is the largest Options.Drop. With more, the seven retries of a packet would often not suffice.
const MaxDrop = 0.25

func (o Options) withDefaults() (Options, error) {
	if given := o.ownDevice(); o.Daemon != nil && given != "" {
		return o, driver.Refuse("demo", given, "given",
			"nothing with a daemon, whose device it is: `goroced fault` and `goroced capture` are for that",
			ib.ErrInvalid)
	}
	if o.Daemon == nil {
		o.Memory = o.Memory || !hasSockets
		o.Client = cmp.Or(o.Client, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		o.Server = cmp.Or(o.Server, netip.AddrFrom4([4]byte{127, 0, 0, 2}))
	}
	if o.MTU == 0 {
		o.MTU = ib.MTU1024
	}
	if o.Measure == 0 {
		o.Measure = time.Second
	}
	switch {
	case !o.MTU.Valid():
		return o, driver.CheckMTU("demo", o.MTU)
	case !(o.Drop >= 0 && o.Drop <= MaxDrop):
		return o, driver.Refuse("demo", "Drop", o.Drop, fmt.Sprintf("0 to %v", MaxDrop), ib.ErrInvalid)
	}
	return o, nil
}

// ownDevice returns the name of the first option that is set and only concerns devices of this process; "" if there is
// none.
func (o *Options) ownDevice() string {
	for _, c := range []struct {
		given bool
		name  string
	}{{o.Memory, "Memory"}, {o.Client.IsValid(), "Client"}, {o.Server.IsValid(), "Server"}, {o.Drop != 0, "Drop"},
		{o.Pcap != nil, "Pcap"}} {
		if c.given {
			return c.name
		}
	}
	return ""
}

// Run runs the demonstration. If data are wrong, the error matches ErrData and there is no report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	rep := newReport(&o)
	if err := inPair(ctx, o, &recorder{}, o.Pcap, rep, func(p *pair) error { return tour(ctx, p, rep) }); err != nil {
		return nil, fmt.Errorf("tour: %w", err)
	}
	if err := inPair(ctx, o, nil, nil, rep, func(p *pair) error { return measure(ctx, p, rep) }); err != nil {
		return nil, fmt.Errorf("measurement: %w", err)
	}
	return rep, nil
}

// inPair opens a pair of hosts, calls f, closes them, and adds their counters to the report.
func inPair(ctx context.Context, o Options, rec *recorder, capture io.Writer, rep *Report,
	f func(*pair) error) (err error) {
	p, err := openPair(ctx, o, rec, capture)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	rep.describe(p)
	err = f(p)
	rep.addCounters(p)
	return err
}
