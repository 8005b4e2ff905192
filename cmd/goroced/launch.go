//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/launch"
)

// runCmd is `goroced run`.
type runCmd struct {
	Socket  string   `placeholder:"PATH" type:"path" help:"Socket of the daemon (default: $$GOROCED_SOCKET, then the usual places, then a daemon that is started)."`
	Program []string `arg:"" passthrough:"" help:"The program and its arguments, after --."`
}

// Help is printed under the flags.
func (*runCmd) Help() string {
	return "The program may be any that is linked with libibverbs, or loads it: it is run as it is, with goroce's in " +
		"place of the machine's, and its exit status is that of `goroced run`. If no daemon runs, one is started for " +
		"this user, which ends a minute after its last client. The libraries are built once with cc, in the user's " +
		"cache; $GOROCE_LIB names a directory that has them already. Where perftest's ib_*_bw and ib_*_lat or the " +
		"ibv_*_pingpong take an index of the GID table (-x, -g), an address may be given, or be in $GOROCE_GID. If " +
		"neither the program nor what it starts opens an RDMA device, a line at its end says so. See docs/dropin.md."
}

// Run runs the subcommand.
func (c *runCmd) Run(a *app) error {
	args := c.Program
	if args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return &usage{text: "run: name a program after --"}
	}
	program, err := launch.Find(args[0]) // before a daemon is started for it
	if err != nil {
		return err
	}
	ready, err := launch.Prepare(a.ctx, c.Socket, func(line string) { fmt.Fprintf(a.err, "goroced: run: %s\n", line) })
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if args, err = indexed(a.ctx, ready.Socket, args, os.Getenv(gidVariable)); err != nil {
		return err
	}
	return ready.Exec(program, args)
}

// envCmd is `goroced env`.
type envCmd struct {
	Socket string `placeholder:"PATH" type:"path" help:"Socket of the daemon (default: $$GOROCED_SOCKET, then the usual places)."`
	Plain  bool   `help:"Print NAME=VALUE, for EnvironmentFile= of systemd and --env-file of containers."`
}

// Help is printed under the flags.
func (*envCmd) Help() string {
	return "In a shell: eval \"$(goroced env)\". Programs that the shell starts after that use the daemon as with " +
		"`goroced run`. `goroced env` builds the libraries if they are not there, and starts no daemon."
}

// Run runs the subcommand.
func (c *envCmd) Run(a *app) error {
	env, offline, err := launch.Locate(a.ctx, c.Socket)
	if err != nil {
		return fmt.Errorf("env: %w", err)
	}
	if offline != nil {
		fmt.Fprintf(a.err, "goroced: env: %v\n", offline)
	}
	for _, v := range env.Variables() {
		line := fmt.Sprintf("export %s=%s", v.Name, quoteShell(v.Value))
		switch {
		case c.Plain:
			line = v.Name + "=" + v.Value
		case v.List:
			line += fmt.Sprintf(`"${%s:+:$%s}"`, v.Name, v.Name)
		}
		if _, err := fmt.Fprintln(a.out, line); err != nil {
			return err
		}
	}
	return nil
}

// quoteShell quotes a word for a POSIX shell.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// spawnCmd is `goroced spawn`, by which `goroced run` starts a daemon.
type spawnCmd struct {
	Log  string   `arg:"" type:"path" help:"Where its output goes."`
	Args []string `arg:"" passthrough:"" help:"What it is started with."`
}

// Run runs the subcommand.
func (c *spawnCmd) Run() error { return launch.Spawn(c.Log, c.Args) }
