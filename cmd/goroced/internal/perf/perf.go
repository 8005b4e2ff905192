package perf

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Run runs one end of a test on dev and prints what the C tool prints.
//
// Errors: ib.AttrError for invalid options, before the peer is contacted; ErrExchange; ErrSilent and ErrPeerLeft;
// ErrData; ib.WCError for a failed request.
func Run(ctx context.Context, dev ib.Device, o Options) (rep *Report, err error) {
	if !o.known() {
		return nil, driver.Refuse("perf", "Op", fmt.Sprintf("%v %v", o.Op, o.Test),
			"send, write, read or atomic; bw or lat", ib.ErrInvalid)
	}
	port, err := dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	attr := dev.Attr()
	o.normalize(&attr, &port)
	if err := o.check(&attr, &port); err != nil {
		return nil, err
	}
	table, err := dev.GIDs(1)
	if err != nil {
		return nil, err
	}
	m, cm, err := findPeer(ctx, dev, &o)
	if err != nil {
		return nil, waiting.Ended(ctx, err, "%s", o.awaited())
	}
	defer m.Close()
	s := &session{o: &o, t: o.traits(), meeting: m, cm: cm, table: table}
	err = s.run(ctx, dev, attr.Name)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return &s.report, nil
}

// run runs all parts of the session.
func (s *session) run(ctx context.Context, dev ib.Device, device string) (err error) {
	if s.gid, err = localGID(s.table, s.o.GIDIndex, s.meeting.localAddr()); err != nil {
		return err
	}
	if err := s.greet(); err != nil {
		return s.suspect(err)
	}
	if s.e, err = newEndpoint(dev, s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.e.Close()) }()
	s.report.Info = s.o.info(device, s.gid.Index)
	s.report.Info.print(s.o.Out, s.o.rule())
	if s.o.CM && s.o.server() {
		fmt.Fprint(s.o.Out, waitingCM+s.o.rule())
	}
	if err := s.connect(); err != nil {
		return s.suspect(err)
	}
	if err := s.play(ctx); err != nil {
		return s.suspect(err)
	}
	s.e.part(ctx)
	if s.o.inspect != nil {
		s.o.inspect(s.e)
	}
	return nil
}

// suspect adds the most likely cause to an error of the exchange.
func (s *session) suspect(err error) error {
	if !errors.Is(err, ErrExchange) {
		return err
	}
	return fmt.Errorf("%w; is the peer %s with the same -c, -q, -b, -a and -D?", err, s.o.command(""))
}
