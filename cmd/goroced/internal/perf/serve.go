package perf

import (
	"context"
	"fmt"
	"io"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// visit is the visit of a client at a server that takes clients in turn.
type visit struct {
	client *meet.Client
	limits *meet.Limits
	ctx    context.Context // ends with the visit
}

// Serve takes goroce clients in turn until ctx ends, which is no error. The options of each test are those of its
// client, as far as limits allow them; o has those of this end alone: Port, GIDIndex, MTU, Events, AckTimeout,
// RetryCount, Timeout, Out, Log and Columns. done gets the report of each test, even of one that failed after it had
// results; what it returns is reported as an error of the client.
func Serve(ctx context.Context, dev ib.Device, o Options, limits meet.Limits, done func(*Report) error) error {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Port < 0 || o.Port > 65535 {
		return driver.Refuse("perf", "Port", o.Port, "0 to 65535", ib.ErrInvalid)
	}
	return meet.Serve(ctx, meet.ServeOptions{Port: o.Port, Greet: o.Timeout, Network: o.network, Log: o.Log,
		Listening: func() {
			fmt.Fprintln(o.Log, o.Here.Waiting("goroced perf OP TEST", o.Port, Defaults(Write, BW).Port))
		},
		Play: func(ctx context.Context, c *meet.Client) error {
			own := o
			s := &session{o: &own, visit: &visit{c, &limits, ctx}}
			if err := s.describe(dev); err != nil {
				return err
			}
			s.meeting = newTCPMeeting(c.Conn, &own)
			err := s.run(ctx, dev)
			if len(s.report.Results) > 0 {
				if failed := done(&s.report); err == nil {
					err = failed
				}
			}
			return err
		}})
}
