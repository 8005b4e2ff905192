package rping

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/pathmtu"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Errors of Run.
var (
	// ErrData: the returned text differs from the one that was sent.
	ErrData = errors.New("data mismatch")
	// ErrSilent: the peer has sent nothing for Options.Timeout.
	ErrSilent = errors.New("the peer fell silent")
	// ErrProtocol: the peer has sent something that rping does not send.
	ErrProtocol = errors.New("the peer does not speak rping")
)

// explainDial adds advice to the error of a failed Dial.
func (o *Options) explainDial(err error) error {
	var reject *rdmacm.RejectError
	if errors.As(err, &reject) && reject.Reason == ib.RejectInvalidServiceID {
		return fmt.Errorf("connect to the server: %w; start it there first: `goroced rping -s -p %d`, or `rping -s "+
			"-p %[2]d`", err, o.Port)
	}
	return fmt.Errorf("connect to the server: %w", err)
}

// explain adds the most likely cause to the error of a request. For a flushed request that is the end of the
// connection.
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
		if blame := pathmtu.Blame(ctx, e.conn, e.longest); blame != nil {
			return fmt.Errorf("%w (%w)", blame, err)
		}
		return fmt.Errorf("%v answers no longer: %w; is the program there still running, and does a firewall stop "+
			"UDP port 4791?", peer, err)
	case ib.WCRemAccessErr:
		return fmt.Errorf("%w: %v refuses access to the memory that it named: %w", ErrProtocol, peer, err)
	case ib.WCLocLenErr, ib.WCRemInvReqErr:
		return fmt.Errorf("%w: messages of %v are not of %d bytes: %w", ErrProtocol, peer, messageLen, err)
	}
	return fmt.Errorf("%v: %w", peer, err)
}

// ended returns the cause of the connection's end.
func (e *endpoint) ended(ctx context.Context, flushed error) error {
	limit := time.NewTimer(e.o.Timeout)
	defer limit.Stop()
	select {
	case <-e.conn.Done():
		hint := ""
		if e.o.Size > int(pathmtu.Common) && e.passed == 0 {
			hint = pathmtu.Hint(e.conn.QPAttr().PathMTU)
		}
		return fmt.Errorf("the connection to %v ended: %w; what does the program there say?%s", e.conn.RemoteAddr(),
			e.conn.Err(), hint)
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return flushed
	}
}
