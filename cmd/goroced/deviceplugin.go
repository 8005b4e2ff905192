//go:build linux

package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/goroce/goroce/cmd/goroced/internal/deviceplugin"
	"github.com/goroce/goroce/internal/socket"
	"github.com/goroce/goroce/roce/daemon/dropin"
)

// devicePluginCmd is `goroced device-plugin`.
type devicePluginCmd struct {
	Socket     string `placeholder:"PATH" help:"Socket of the daemon, whose folder containers get (default: $$GOROCED_SOCKET, then that of root's daemon)."`
	Shares     int    `default:"32" placeholder:"N" help:"How many containers of this node may use the daemon at a time (${default})."`
	Inject     string `default:"mounts" enum:"mounts,cdi" help:"How containers get it: mounts and variables, which every container runtime has, or the name of a CDI device (${default})."`
	LibDir     string `default:"/var/lib/goroce/lib" placeholder:"DIR" help:"Where the libraries for programs in C are put for containers (${default})."`
	CDIDir     string `name:"cdi-dir" default:"/var/run/cdi" placeholder:"DIR" help:"Where the CDI file is put; none if DIR is empty (${default})."`
	KubeletDir string `default:"/var/lib/kubelet/device-plugins" placeholder:"DIR" help:"Where the kubelet's socket is (${default})."`
}

// Help is printed under the flags.
func (*devicePluginCmd) Help() string {
	return "Containers of pods that ask for " + deviceplugin.Resource + " get the daemon's socket, the libraries of " +
		"`goroced run`, and its variables: unmodified programs that use libibverbs see the device. It runs beside " +
		"`goroced serve`, as root, with the node's folders at the same paths. See docs/kubernetes.md."
}

// Run runs the subcommand.
func (c *devicePluginCmd) Run(a *app) error {
	libs, err := dropin.Libraries(a.ctx)
	if err == nil {
		err = deviceplugin.Run(a.ctx, deviceplugin.Options{Socket: c.socket(), Shares: c.Shares, Libraries: libs,
			LibDir: c.LibDir, Kubelet: c.KubeletDir, CDIDir: c.CDIDir, UseCDI: c.Inject == "cdi",
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	}
	if err != nil {
		return fmt.Errorf("device-plugin: %w", err)
	}
	return nil
}

// socket returns the path of the daemon's socket. There is one for the node, not for a user.
func (c *devicePluginCmd) socket() string {
	if c.Socket != "" {
		return c.Socket
	}
	if path := os.Getenv(socket.ClientVariable); path != "" {
		return path
	}
	return socket.Default(0, os.Getenv).Client
}
