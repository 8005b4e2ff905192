//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// adminFlags select the daemon.
type adminFlags struct {
	Socket string `name:"admin" placeholder:"PATH" type:"path" help:"Admin socket of the daemon (default: $$GOROCED_ADMIN, then the usual places)."`
	Device string `aliases:"dev" short:"d" placeholder:"DEV" help:"Device of the daemon (default: all, or the only one if one is needed)."`
}

// captureCmd is `goroced capture`.
type captureCmd struct {
	Output string `short:"o" placeholder:"FILE" type:"path" help:"pcapng file to write (default: standard output)."`
	QP     uint32 `name:"qp" placeholder:"N" help:"Only this queue pair, both ways if it is connected."`
	PeerQP uint32 `name:"peer-qp" placeholder:"N" help:"Only this queue pair of a peer."`
	Peer   string `placeholder:"IP" help:"Only this peer."`
	Count  uint64 `short:"c" placeholder:"N" help:"End after so many packets (default: when interrupted)."`

	OnError bool `help:"Wait for the next failure of a queue pair of yours, and write the packets before it, with headers and without payload, from its flight recorder."`
	adminFlags
}

// Help is printed under the flags.
func (*captureCmd) Help() string {
	return "Shows the packets of a running daemon as they are on the wire, also those between two programs on this " +
		"machine. Faults act on sent packets before the capture, and on received packets after it. " +
		"`goroced capture --qp 0x11 | goroced decode -` explains the packets, `| wireshark -k -i -` shows them as " +
		"they come."
}

// Run runs the subcommand.
func (c *captureCmd) Run(a *app) error {
	if c.OnError {
		return c.onError(a)
	}
	out := a.out
	if c.Output != "" {
		f, err := createCapture(c.Output)
		if err != nil {
			return err
		}
		defer f.Close() // Capture returns errors of writing
		out = f
	} else if a.term.Real {
		return errors.New("a capture is not for terminals: give -o FILE, or pipe it into `goroced decode -` or " +
			"`wireshark -k -i -`")
	}
	got, err := admin.NewClient(c.Socket).Capture(a.ctx, out, admin.CaptureOptions{
		Device: c.Device, QP: c.QP, PeerQP: c.PeerQP, Peer: c.Peer, Packets: c.Count})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "%d packets captured, %d lost because they were not read fast enough\n", got.Packets,
		got.Lost)
	return err
}

// onError writes the packets before the next failure.
func (c *captureCmd) onError(a *app) error {
	for _, o := range []struct {
		given bool
		flag  string
	}{{c.Output == "", "without -o FILE"}, {c.Peer != "", "--peer"}, {c.PeerQP != 0, "--peer-qp"},
		{c.Count != 0, "--count"}} {
		if o.given {
			return driver.Refuse("capture", "--on-error", o.flag, "with -o FILE, --qp and --device", ib.ErrInvalid)
		}
	}
	err := capturedStory(a, admin.NewClient(c.Socket), c.Output, c.Device, c.QP, true)
	if err != nil && a.ctx.Err() != nil {
		return nil // interrupted
	}
	return err
}
