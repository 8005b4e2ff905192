package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/waiting"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Run runs one end of a test on dev and prints what the C tool prints. If ctx ends, the report comes with the error and
// has what was measured so far, or it is nil.
//
// Errors: ib.AttrError for invalid options, before the peer is contacted; ErrExchange; meet.ErrMismatch,
// meet.ErrRefused and meet.ErrVersion; ErrSilent and ErrPeerLeft; ErrData; ib.WCError for a failed request.
func Run(ctx context.Context, dev ib.Device, o Options) (rep *Report, err error) {
	if !o.known() {
		return nil, driver.Refuse("perf", "Op", fmt.Sprintf("%v %v", o.Op, o.Test),
			"send, write, read or atomic; bw or lat", ib.ErrInvalid)
	}
	s := &session{o: &o, t: o.traits()}
	if err := s.describe(dev); err != nil {
		return nil, err
	}
	o.normalize(&s.attr, &s.port)
	if err := o.check(&s.attr, &s.port); err != nil {
		return nil, err
	}
	if s.meeting, s.cm, err = findPeer(ctx, dev, &o); err != nil {
		return nil, waiting.Ended(ctx, err, "%s", o.awaited())
	}
	defer s.meeting.Close()
	err = s.run(ctx, dev)
	if ctx.Err() != nil {
		err = ctx.Err()
		if len(s.report.Results) > 0 {
			return &s.report, err
		}
	}
	if err != nil {
		return nil, err
	}
	return &s.report, nil
}

// describe asks the device what it can.
func (s *session) describe(dev ib.Device) (err error) {
	s.attr = dev.Attr()
	if s.port, err = dev.QueryPort(1); err != nil {
		return err
	}
	s.table, err = dev.GIDs(1)
	return err
}

// run runs all parts of the session.
func (s *session) run(ctx context.Context, dev ib.Device) (err error) {
	if s.gid, err = localGID(s.table, s.o.GIDIndex, s.meeting.localAddr()); err != nil {
		return err
	}
	if err := s.greet(); err != nil {
		return s.suspect(err)
	}
	s.began = time.Now()
	if s.e, err = newEndpoint(dev, s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.e.Close()) }()
	s.report.Info = s.o.info(s.attr.Name, s.gid.Index)
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
	if s.maxTime > 0 && !s.began.IsZero() && s.began.Add(s.maxTime).Before(time.Now()) {
		return fmt.Errorf("%w; the server ends a test after %v (--max-time there)", err, s.maxTime)
	}
	if !errors.Is(err, ErrExchange) || s.agreed || s.visit != nil {
		return err
	}
	return fmt.Errorf("%w; is the peer %s with the same -c, -q, -b, -a and -D?", err, s.o.command(""))
}
