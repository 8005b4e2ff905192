//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// noService keeps services from starting as their packages are installed: invoke-rc.d(8) asks this script.
const noService = "/usr/sbin/policy-rc.d"

// installPackages installs the packages of rows, as root on Debian.
func installPackages(ctx context.Context, rows []row) error {
	if _, err := os.Stat(noService); err != nil {
		if err := os.WriteFile(noService, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
			return err
		}
		defer os.Remove(noService)
	}
	args := append([]string{"-qq", "install", "--yes", "--no-install-recommends"}, packages(rows)...)
	for _, args := range [][]string{{"-qq", "update"}, args} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[1], err, out)
		}
	}
	return nil
}

// versions returns the versions of the packages of rows that are installed.
func versions(rows []row) map[string]string {
	list := map[string]string{}
	args := append([]string{"-W", "-f", "${Package} ${db:Status-Status} ${Version}\n"}, packages(rows)...)
	// It fails for packages that are not there, and lists the others.
	out, _ := exec.Command("dpkg-query", args...).Output()
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "installed" {
			list[f[0]] = f[2]
		}
	}
	return list
}
