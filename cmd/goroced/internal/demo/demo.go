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
)

// ErrData: bytes arrived that are not those that were sent.
var ErrData = errors.New("data differ")

// Options of Run. The zero value suits.
type Options struct {
	// Daemon, if it is not nil, has the hosts be clients of a daemon. Client, Server,
	// Drop and Pcap are of no use then, and refused.
	Daemon *Daemon
	// Client and Server are the hosts' addresses, 127.0.0.1 and 127.0.0.2 by
	// default. Both must be this machine's.
	Client, Server netip.Addr
	// MTU is the path MTU, 1024 by default.
	MTU ib.MTU
	// Drop is the probability with which each host loses a packet that it sends;
	// Seed makes the losses repeatable as far as timing lets them be.
	Drop float64
	Seed uint64
	// Pcap takes a pcapng capture of the tour, as the client sees it, with a
	// little bulk traffic at the end. It is complete when Run returns.
	Pcap io.Writer
	// Measure is how long the measurement of bandwidth takes, a second by
	// default; that of latency takes a third of it.
	Measure time.Duration
}

// MaxDrop is the most that Options.Drop may be. With more, one loss in a few
// would exhaust the seven retries of a packet.
const MaxDrop = 0.25

func (o Options) withDefaults() (Options, error) {
	if given := o.ownDevice(); o.Daemon != nil && given != "" {
		return o, ib.Refuse("options", given, "given",
			"nothing with a daemon, whose device it is: `goroced fault` and `goroced capture` are for that",
			ib.ErrInvalid)
	}
	if o.Daemon == nil {
		o.Client = cmp.Or(o.Client, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		o.Server = cmp.Or(o.Server, netip.AddrFrom4([4]byte{127, 0, 0, 2}))
	}
	if o.MTU == 0 {
		o.MTU = ib.MTU1024
	}
	if o.Measure == 0 {
		o.Measure = time.Second
	}
	if !(o.Drop >= 0 && o.Drop <= MaxDrop) {
		return o, ib.Refuse("options", "Drop", o.Drop, fmt.Sprintf("0 to %v", MaxDrop), ib.ErrInvalid)
	}
	return o, nil
}

// ownDevice returns the first option that is set and that concerns devices of this
// process; "" if none is.
func (o *Options) ownDevice() string {
	for _, c := range []struct {
		given bool
		name  string
	}{{o.Client.IsValid(), "Client"}, {o.Server.IsValid(), "Server"}, {o.Drop != 0, "Drop"}, {o.Pcap != nil, "Pcap"}} {
		if c.given {
			return c.name
		}
	}
	return ""
}

// Run gives the demonstration. Wrong data are an error that matches ErrData;
// there is no report then.
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

// inPair opens a pair of hosts for the time of f, and adds up what they counted.
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
