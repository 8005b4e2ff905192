package rping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/goroce/goroce/cmd/goroced/internal/pathmtu"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/rdmacm"
)

// Run runs one end on dev. A client returns when it has disconnected after Options.Count pings. A server returns when
// its client has disconnected, a persistent one when ctx ends.
func Run(ctx context.Context, dev ib.Device, o Options) (err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := pathmtu.Check("rping", dev, o.MTU); err != nil {
		return err
	}
	if o.Persistent {
		var mu sync.Mutex
		o.Out, o.Log = &lockedWriter{&mu, o.Out}, &lockedWriter{&mu, o.Log}
	}
	cm, err := rdmacm.Open(dev, rdmacm.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cm.Close()) }()
	if o.Server {
		return serve(ctx, cm, &o)
	}
	return ping(ctx, cm, &o)
}

// lockedWriter is a writer for the goroutines of several connections.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// debugf logs a step.
func (o *Options) debugf(format string, args ...any) {
	if o.Debug {
		fmt.Fprintf(o.Log, format+"\n", args...)
	}
}
