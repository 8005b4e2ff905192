package rping

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/wire"
)

// Errors of Run.
var (
	// ErrData: a text returned that is not the one that was sent.
	ErrData = errors.New("data mismatch")
	// ErrSilent: the peer sent nothing for as long as Options.Timeout.
	ErrSilent = errors.New("the peer fell silent")
	// ErrProtocol: the peer did something that rping does not do.
	ErrProtocol = errors.New("the peer does not speak rping")
)

// explainDial adds to a failed Dial what to do.
func (o *Options) explainDial(err error) error {
	var reject *rdmacm.RejectError
	if errors.As(err, &reject) && reject.Reason == wire.RejectInvalidServiceID {
		return fmt.Errorf("connect to the server: %w; start it there first: `goroced rping -s -p %d`, or `rping -s "+
			"-p %[2]d`", err, o.Port)
	}
	return fmt.Errorf("connect to the server: %w", err)
}

// explain adds to the error of a request what it most likely means. Requests that
// were flushed tell nothing: the end of the connection does.
func (e *endpoint) explain(ctx context.Context, err error) error {
	var wc *ib.WCError
	if !errors.As(err, &wc) {
		return err
	}
	peer := e.conn.RemoteAddr()
	switch wc.Status {
	case ib.WCWRFlushErr:
		return e.ended(ctx, err)
	case ib.WCRetryExcErr:
		return fmt.Errorf("%v answers no longer: %w; is the program there still running, and does a firewall stop "+
			"UDP port 4791?", peer, err)
	case ib.WCRemAccessErr:
		return fmt.Errorf("%w: %v lets us not into the memory that it named: %w", ErrProtocol, peer, err)
	case ib.WCLocLenErr, ib.WCRemInvReqErr:
		return fmt.Errorf("%w: messages of %v are not of %d bytes: %w", ErrProtocol, peer, messageLen, err)
	}
	return fmt.Errorf("%v: %w", peer, err)
}

// ended says why the connection ended.
func (e *endpoint) ended(ctx context.Context, flushed error) error {
	limit := time.NewTimer(e.o.Timeout)
	defer limit.Stop()
	select {
	case <-e.conn.Done():
		return fmt.Errorf("the connection to %v ended: %w; what does the program there say?", e.conn.RemoteAddr(),
			e.conn.Err())
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return flushed
	}
}
