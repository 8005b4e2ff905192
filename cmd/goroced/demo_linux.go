package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/goroce/cmd/goroced/internal/demo"
	"github.com/goroce/goroce/roce/daemon/client"
	"github.com/goroce/goroce/roce/link/port"
)

// demoDaemon has the flags of `goroced demo` for a daemon.
type demoDaemon struct {
	Device string `short:"d" placeholder:"DEV" help:"Device of the daemon (default: its first)." group:"Device"`
	Admin  string `placeholder:"PATH" type:"path" help:"Admin socket of the daemon, to capture packets (default: $$GOROCED_ADMIN, then the usual places)." group:"Device"`
	daemonFlags
}

// options returns the daemon that the flags ask for, nil if they do not.
func (f *demoDaemon) options() *demo.Daemon {
	if !f.asked() && f.Device == "" && f.Admin == "" {
		return nil
	}
	return &demo.Daemon{Socket: f.Socket, Admin: f.Admin, Device: f.Device}
}

// instead returns the daemon that has the port of the demonstration's addresses, if it has failed by that and the
// flags leave open whose devices it has; else nil. It says so.
func (f *demoDaemon) instead(ctx context.Context, err error) *demo.Daemon {
	if f.Own || !errors.Is(err, port.ErrTaken) {
		return nil
	}
	socket, err := client.Find(ctx)
	if err != nil {
		return nil
	}
	fmt.Fprintf(messages, "goroced: the hosts are clients of the daemon at %s, which has their port; --own takes "+
		"devices of this program\n", socket)
	return &demo.Daemon{Socket: socket}
}
