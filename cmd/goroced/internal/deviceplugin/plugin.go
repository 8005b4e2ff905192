//go:build linux

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

// Resource is what pods ask for.
const Resource = "goroce.dev/rdma"

// MaxShares bounds Options.Shares: the kubelet is sent the whole list with each change.
const MaxShares = 10000

// Options say what is offered, and where. All paths are those of the node: if the plugin runs in a container, they must
// lead to the same files there.
type Options struct {
	Socket    string // of the daemon; its folder is mounted in containers
	Shares    int    // how many containers may use it at a time, 1 to MaxShares
	Libraries string // folder with the libraries for programs in C
	LibDir    string // where they are copied to, to be mounted in containers
	Kubelet   string // folder of the kubelet's sockets
	CDIDir    string // folder of CDI files; "" for none
	UseCDI    bool   // tell the kubelet the name of the CDI device, instead of mounts and variables

	Interval time.Duration // between two looks at the kubelet, and at the daemon; a second if 0
	Log      *slog.Logger
}

// OptionError is an option that is not allowed. It matches ib.ErrInvalid.
type OptionError struct{ Name, Value, Allowed string }

func (e *OptionError) Error() string {
	return fmt.Sprintf("%s is %q: not allowed; allowed: %s", e.Name, e.Value, e.Allowed)
}

// Unwrap returns ib.ErrInvalid.
func (e *OptionError) Unwrap() error { return ib.ErrInvalid }

func (o *Options) check() error {
	if o.Shares < 1 || o.Shares > MaxShares {
		return &OptionError{"shares", fmt.Sprint(o.Shares), fmt.Sprintf("1 to %d", MaxShares)}
	}
	for _, p := range []struct{ name, path string }{
		{"the socket", o.Socket}, {"the folder for libraries", o.LibDir}, {"the kubelet's folder", o.Kubelet},
	} {
		if !filepath.IsAbs(p.path) || filepath.Dir(p.path) == "/" {
			return &OptionError{p.name, p.path, "an absolute path, not directly below /"}
		}
	}
	if o.UseCDI && o.CDIDir == "" {
		return &OptionError{"the folder of CDI files", "", "a path: containers shall be injected by CDI"}
	}
	return nil
}

// Run puts the libraries and the CDI file in their places, and then serves the kubelet until ctx ends. It waits for a
// kubelet or a daemon that is not there. What it has put in place stays: containers that run have it mounted.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if err := copyLibraries(o.Libraries, o.LibDir); err != nil {
		return fmt.Errorf("libraries for containers: %w", err)
	}
	gift := gift{dropin.Environment{Socket: o.Socket, Libraries: o.LibDir}, o.UseCDI}
	if o.CDIDir != "" {
		if err := gift.writeCDI(o.CDIDir); err != nil {
			return fmt.Errorf("CDI file: %w", err)
		}
	}
	shares := newShares(o.Shares)
	health := prober{socket: o.Socket, limit: answerLimit, shares: shares, log: o.Log}
	reg := registrar{dir: o.Kubelet, service: &service{shares: shares, gift: gift}, log: o.Log}
	var running sync.WaitGroup
	running.Go(func() { every(ctx, o.Interval, health.look) })
	every(ctx, o.Interval, reg.look)
	running.Wait()
	return errors.Join(reg.close(), health.close())
}

// every calls f at once, and then again and again until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
