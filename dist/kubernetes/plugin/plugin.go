package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

// resource is what pods ask for.
const resource = "goroce.dev/rdma"

// maxShares bounds options.Shares: the kubelet is sent the whole list with each change.
const maxShares = 10000

// options say what is offered, and where. All paths are those of the node: if the plugin runs in a container, they must
// lead to the same files there.
type options struct {
	Socket     string `default:"${socket}" placeholder:"PATH" help:"Socket of the daemon, whose folder containers get (default: $$GOROCED_SOCKET, then that of root's daemon)."`
	Shares     int    `default:"32" placeholder:"N" help:"How many containers of this node may use the daemon at a time (${default})."`
	Inject     string `default:"mounts" enum:"mounts,cdi" help:"How containers get it: mounts and variables, which every container runtime has, or the name of a CDI device (${default})."`
	LibDir     string `default:"/var/lib/goroce/lib" placeholder:"DIR" help:"Where the libraries for programs in C are put for containers (${default})."`
	CDIDir     string `name:"cdi-dir" default:"/var/run/cdi" placeholder:"DIR" help:"Where the CDI file is put; none if DIR is empty (${default})."`
	KubeletDir string `default:"/var/lib/kubelet/device-plugins" placeholder:"DIR" help:"Where the kubelet's socket is (${default})."`

	Version kong.VersionFlag `help:"Print the version."`

	Libraries string        `kong:"-"` // folder with the libraries for programs in C
	Interval  time.Duration `kong:"-"` // between two looks at the kubelet, and at the daemon
	Log       *slog.Logger  `kong:"-"`
}

// optionError is an option that is not allowed. It matches ib.ErrInvalid.
type optionError struct{ Name, Value, Allowed string }

func (e *optionError) Error() string {
	return fmt.Sprintf("%s is %q: not allowed; allowed: %s", e.Name, e.Value, e.Allowed)
}

// Unwrap returns ib.ErrInvalid.
func (e *optionError) Unwrap() error { return ib.ErrInvalid }

func (o *options) check() error {
	if o.Shares < 1 || o.Shares > maxShares {
		return &optionError{"shares", fmt.Sprint(o.Shares), fmt.Sprintf("1 to %d", maxShares)}
	}
	for _, p := range []struct{ name, path string }{
		{"the socket", o.Socket}, {"the folder for libraries", o.LibDir}, {"the kubelet's folder", o.KubeletDir},
	} {
		if !filepath.IsAbs(p.path) || filepath.Dir(p.path) == "/" {
			return &optionError{p.name, p.path, "an absolute path, not directly below /"}
		}
	}
	if o.Inject == "cdi" && o.CDIDir == "" {
		return &optionError{"the folder of CDI files", "", "a path: containers shall be injected by CDI"}
	}
	return nil
}

// serve puts the libraries and the CDI file in their places, and then serves the kubelet until ctx ends. It waits for a
// kubelet or a daemon that is not there. What it has put in place stays: containers that run have it mounted.
func serve(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := copyLibraries(o.Libraries, o.LibDir); err != nil {
		return fmt.Errorf("libraries for containers: %w", err)
	}
	gift := gift{dropin.Environment{Socket: o.Socket, Libraries: o.LibDir}, o.Inject == "cdi"}
	if o.CDIDir != "" {
		if err := gift.writeCDI(o.CDIDir); err != nil {
			return fmt.Errorf("CDI file: %w", err)
		}
	}
	shares := newShares(o.Shares)
	health := prober{socket: o.Socket, limit: answerLimit, shares: shares, log: o.Log}
	reg := registrar{dir: o.KubeletDir, service: &service{shares: shares, gift: gift}, log: o.Log}
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
