//go:build linux

package main

import (
	"errors"
	"fmt"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// whyCmd is `goroced why`.
type whyCmd struct {
	QPN  uint32 `arg:"" optional:"" name:"qpn" help:"The story of this queue pair, open or closed; without it, the last 64 failures."`
	Pcap string `placeholder:"FILE" type:"path" help:"Write the packets of the story to a pcapng file, with headers and without payload."`
	Rows int    `default:"40" placeholder:"N" help:"Last events of the story to show; 0 for all (default ${default})."`
	viewFlags
}

// Help is printed under the flags.
func (*whyCmd) Help() string {
	return "Each queue pair of the daemon's clients has a flight recorder with its last 255 packets (headers only), " +
		"requests, completions and timers. Its story is drawn as a ladder, with a ! where it goes wrong; ask the " +
		"peer's side, too. `goroced why --pcap story.pcapng QPN` writes its packets for Wireshark and `goroced " +
		"decode`; `goroced capture --on-error` waits for the next failure."
}

// Run says why queue pairs have failed, the latest last.
func (c *whyCmd) Run(a *app) error {
	if c.QPN != 0 {
		return c.tell(a)
	}
	if c.Pcap != "" {
		return driver.Refuse("why", "--pcap", c.Pcap, "with a QPN: it writes the packets of one queue pair",
			ib.ErrInvalid)
	}
	return show(&c.viewFlags, a, (*admin.Client).Failures, admin.DeviceOfFailure, admin.PrintFailures)
}

// tell tells the story of a queue pair.
func (c *whyCmd) tell(a *app) error {
	client, err := c.client(a)
	if err != nil {
		return err
	}
	if c.Pcap != "" {
		return capturedStory(a, client, c.Pcap, c.Device, c.QPN, false)
	}
	list, err := client.Why(a.ctx, c.Device, c.QPN)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.out, list)
	}
	return admin.PrintWhy(a.out, a.term, list, c.Rows)
}

// capturedStory writes the packets of a story to a file, and says what has failed. With next it waits for the next
// failure.
func capturedStory(a *app, client *admin.Client, file, device string, qpn uint32, next bool) (err error) {
	f, err := createCapture(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	said, err := client.WhyCapture(a.ctx, f, device, qpn, next)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.err, said)
	return err
}
