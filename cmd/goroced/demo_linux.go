package main

import "github.com/goroce/goroce/cmd/goroced/internal/demo"

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
