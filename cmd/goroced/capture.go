//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// adminFlags select the daemon.
type adminFlags struct {
	Socket string `name:"admin" placeholder:"PATH" type:"path" help:"Admin socket of the daemon (default: $$GOROCED_ADMIN, then the usual places)."`
	Device string `complete:"devices" aliases:"dev" short:"d" placeholder:"DEV" help:"Device of the daemon (default: all, or the only one if one is needed)."`
}

// packetFlags select packets of a daemon.
type packetFlags struct {
	QP     uint32 `complete:"qps" name:"qp" placeholder:"N" help:"Only this queue pair, both ways if it is connected."`
	PeerQP uint32 `name:"peer-qp" placeholder:"N" help:"Only this queue pair of a peer."`
	Peer   string `placeholder:"IP" help:"Only this peer."`
	Count  uint64 `short:"c" placeholder:"N" help:"End after so many packets (default: when interrupted)."`
	adminFlags
}

// capture writes the selected packets to w as they come.
func (c *packetFlags) capture(a *app, w io.Writer) (admin.CaptureResult, error) {
	return admin.NewClient(c.Socket).Capture(a.ctx, w, admin.CaptureOptions{Device: c.Device, QP: c.QP,
		PeerQP: c.PeerQP, Peer: c.Peer, Packets: c.Count})
}

// captureCmd is `goroced capture`.
type captureCmd struct {
	Output  string `short:"o" placeholder:"FILE" type:"path" help:"pcapng file to write (default: standard output)."`
	OnError bool   `help:"Wait for the next failure of a queue pair of yours, and write the packets before it, with headers and without payload, from its flight recorder."`
	packetFlags
}

// Help is printed under the flags.
func (*captureCmd) Help() string {
	return "Shows the packets of a running daemon as they are on the wire, also those between two programs on this " +
		"machine. Faults act on sent packets before the capture, and on received packets after it. " +
		"`goroced watch` explains the packets as they come, `goroced capture | wireshark -k -i -` shows them in " +
		"Wireshark."
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
		return errors.New("a capture is not for terminals: give -o FILE, pipe it into `wireshark -k -i -`, or see it " +
			"explained by `goroced watch`")
	}
	got, err := c.capture(a, out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "%d packets captured, %d lost because they were not read fast enough\n", got.Packets,
		got.Lost)
	return err
}

// watchCmd is `goroced watch`.
type watchCmd struct {
	packetFlags
	decodeFlags
}

// Help is printed under the flags.
func (*watchCmd) Help() string {
	return "Explains the packets of a running daemon as they come: `goroced capture` and `goroced decode` in one. " +
		"When it is interrupted, or has shown as many packets as -c says, it prints a summary of each connection."
}

// Run runs the subcommand.
func (c *watchCmd) Run(a *app) error {
	o, err := c.options(a, "watched", c.QP)
	if err != nil {
		return err
	}
	in, out := io.Pipe()
	captured := make(chan error, 1)
	go func() {
		_, err := c.capture(a, &announced{Writer: out, to: a.err})
		_ = out.Close()
		captured <- err
	}()
	_, err = decode.Run(a.out, in, o)
	_ = in.CloseWithError(err)
	if captureErr := <-captured; captureErr != nil {
		return captureErr // without a capture there is nothing to decode
	}
	return err
}

// announced is where a capture goes. It says when that has begun, which is with the header of the file.
type announced struct {
	io.Writer
	to    io.Writer
	begun bool
}

func (w *announced) Write(b []byte) (int, error) {
	if !w.begun {
		w.begun = true
		fmt.Fprintln(w.to, "packets are shown as they come; Ctrl-C ends it with a summary")
	}
	return w.Writer.Write(b)
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
