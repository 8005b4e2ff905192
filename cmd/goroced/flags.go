package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce"
	"github.com/goroce/goroce/roce/host"
	"github.com/goroce/goroce/roce/link/wrap"
	"github.com/goroce/goroce/roce/trace"
)

// deviceFlags choose a device.
type deviceFlags struct {
	Link  string       `default:"auto" enum:"auto,udp,rawsock" help:"What carries the packets: ${enum}." group:"Device"`
	NetIf string       `name:"netif" placeholder:"IF" help:"Network interface whose addresses to use (default: that of the default route)." group:"Device"`
	Addr  []netip.Addr `placeholder:"IP" help:"Own addresses to use, instead of --netif." group:"Device"`
	Dev   string       `name:"ib-dev" short:"d" placeholder:"DEV" help:"Device to use, as devinfo -l names it." group:"Device"`
}

// options returns what host.Open is to open.
func (f *deviceFlags) options() (host.Options, error) {
	o := host.Options{Link: f.Link, NetIf: f.NetIf, Addrs: f.Addr}
	if f.Dev == "" {
		return o, nil
	}
	if o.NetIf != "" || len(o.Addrs) > 0 {
		return o, errors.New("-d, --netif and --addr exclude one another")
	}
	o.NetIf = strings.TrimPrefix(f.Dev, host.DevicePrefix)
	return o, nil
}

// faultFlags make the network bad.
type faultFlags struct {
	Drop float64 `placeholder:"P" help:"Lose each packet sent with this probability, on purpose." group:"Faults"`
	Seed uint64  `default:"1" help:"Which packets are lost." group:"Faults"`
}

func (f *faultFlags) config() (wrap.FaultConfig, error) {
	if !(f.Drop >= 0 && f.Drop < 1) {
		return wrap.FaultConfig{}, &ib.AttrError{Op: "faults", Attr: "--drop", Value: f.Drop, Allowed: "0 to less than 1", Err: ib.ErrInvalid}
	}
	return wrap.FaultConfig{Drop: f.Drop, Seed: f.Seed}, nil
}

// withDevice opens a device for the time of f. The capture file, if there is one,
// is complete afterwards.
func withDevice(o host.Options, pcap string, f func(*roce.Device) error) (err error) {
	capture, err := createCapture(pcap)
	if err != nil {
		return err
	}
	if capture != nil {
		o.Pcap = capture
		defer func() { err = errors.Join(err, capture.Close()) }()
	}
	dev, err := host.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return f(dev)
}

// createCapture creates a capture file; nil for no name.
func createCapture(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("capture file: %w", err)
	}
	return f, nil
}

// ladderFlags say how ladder diagrams are drawn.
type ladderFlags struct {
	Width int  `placeholder:"N" help:"Columns of diagrams (default: the terminal's, or 100)."`
	ASCII bool `help:"Draw without Unicode characters."`
}

func (f *ladderFlags) options() trace.Options {
	return trace.Options{Width: f.columns(), ASCII: f.ASCII}
}

// columns returns the width to draw in, 0 if nothing is known.
func (f *ladderFlags) columns() int {
	if f.Width > 0 {
		return f.Width
	}
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
