//go:build !linux

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/goroce/goroce/ib"
)

// hasSockets: the links of package host, and the daemon, are for Linux.
const hasSockets = false

var errLinux = fmt.Errorf("on %s there are hosts in memory only: %w", runtime.GOOS, ib.ErrNotSupported)

func (s *side) onSockets(netip.Addr, stack) error { return errLinux }

func (s *side) dial(context.Context, *Daemon) error { return errLinux }

func (p *pair) captureInto(context.Context) (*packetStream, error) { return nil, errLinux }
