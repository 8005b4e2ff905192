//go:build !linux

package main

import (
	"context"

	"github.com/goroce/goroce/cmd/goroced/internal/demo"
)

// linuxCommands are the subcommands that need Linux.
type linuxCommands struct{}

// demoDaemon has the flags of `goroced demo` for a daemon, which needs Linux.
type demoDaemon struct{}

func (demoDaemon) options() *demo.Daemon { return nil }

func (demoDaemon) instead(context.Context, error) *demo.Daemon { return nil }
