package daemontest

import (
	"context"
	"testing"

	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/roce/rdmacm"
	"github.com/goroce/goroce/roce/simtest"
)

// Daemon is a daemon on a host of a simulation, for the host's device.
type Daemon struct {
	t      *testing.T
	server *server.Server
	local  *abi.Local
	cancel context.CancelFunc
	ended  chan error
}

// Start starts a daemon on the host, for its device, of which nobody else must take events (NextEvent). It ends with
// the device: with the simulation, or by Reboot.
func Start(t *testing.T, h *simtest.Host, o server.Options) *Daemon {
	t.Helper()
	s, err := server.New([]roce.Device{h.Device()}, o)
	if err != nil {
		t.Fatalf("start a daemon: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Daemon{t: t, server: s, local: abi.NewLocal(h.Tell), cancel: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- s.ServeListener(ctx, d.local) }()
	h.OnClose(d.stop)
	return d
}

// stop ends the daemon. The device needs a part of it until it is closed.
func (d *Daemon) stop() (closed func()) {
	d.Stop()
	return func() {
		if err := d.server.Close(); err != nil {
			d.t.Errorf("close a daemon: %v", err)
		}
	}
}

// Stop ends the daemon, as a signal to its process does: its clients lose their objects. The device stays open.
func (d *Daemon) Stop() {
	d.cancel()
	err, first := <-d.ended
	if !first {
		return
	}
	close(d.ended)
	if err != nil {
		d.t.Errorf("the end of a daemon: %v", err)
	}
}

// Server returns the daemon's server: who its clients are, what they hold, its limits.
func (d *Daemon) Server() *server.Server { return d.server }

// Dial connects a client, and returns its device.
func (d *Daemon) Dial(ctx context.Context) (*client.Device, error) {
	conn, err := d.local.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return client.Open(ctx, conn, "")
}

// Client is Dial for a client that lasts as long as the test. An error ends the test.
func (d *Daemon) Client(t *testing.T) *client.Device {
	t.Helper()
	dev, err := d.Dial(t.Context())
	if err != nil {
		t.Fatalf("connect to a daemon: %v", err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	return dev
}

// CM returns the connection manager of a new client, as Client.
func (d *Daemon) CM(t *testing.T) *rdmacm.CM {
	t.Helper()
	cm, err := rdmacm.Open(d.Client(t), rdmacm.Options{})
	if err != nil {
		t.Fatalf("open the connection manager of a client: %v", err)
	}
	t.Cleanup(func() { _ = cm.Close() })
	return cm
}
