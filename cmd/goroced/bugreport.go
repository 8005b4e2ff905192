//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/goroce/goroce/cmd/goroced/internal/bugreport"
)

// bugreportCmd is `goroced bugreport`.
type bugreportCmd struct {
	Output    string `short:"o" default:"goroced-report.txt" placeholder:"FILE" type:"path" help:"File to write (default ${default}); - is standard output."`
	Addresses bool   `help:"Leave addresses, keys, PSNs and QP numbers as they are."`
	adminFlags
}

// Help is printed under the flags.
func (*bugreportCmd) Help() string {
	return "The report has the version, the system, what doctor finds, the configuration, and state, counters, " +
		"faults and failures of the daemon, with the end of its log where systemd keeps that. It has no contents of " +
		"memory. Addresses are replaced by names, and keys, PSNs and QP numbers are left out; read it all the same " +
		"before you send it."
}

// Run runs the subcommand.
func (c *bugreportCmd) Run(a *app) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bugreport: %w", err)
	}
	var admin []string
	if c.Socket != "" {
		admin = []string{"--admin", c.Socket}
	}
	commands := [][]string{{"uname", "-srvm"}, {"cat", "/etc/os-release"}, {own, "version"}, {own, "doctor"},
		{own, "config", "show"}}
	for _, view := range [][]string{{"status"}, {"stat", "--rdma"}, {"top", "--plain"}, {"fault", "list"}, {"why"}} {
		commands = append(commands, append(append([]string{own}, view...), admin...))
	}
	commands = append(commands, []string{"journalctl", "--no-pager", "--lines=200", "--unit=goroced"})
	hide := bugreport.Hider()
	if c.Addresses {
		hide = func(s string) string { return s }
	}
	if c.Output == "-" {
		return bugreport.Write(a.ctx, a.out, commands, hide)
	}
	f, err := os.Create(c.Output)
	if err != nil {
		return fmt.Errorf("bugreport: %w", err)
	}
	w := bufio.NewWriter(f)
	err = errors.Join(bugreport.Write(a.ctx, w, commands, hide), w.Flush(), f.Close())
	if err == nil {
		_, err = fmt.Fprintf(a.out, "%s is written; read it before you send it\n", c.Output)
	}
	return err
}
