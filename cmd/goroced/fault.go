//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
)

// faultCmd is `goroced fault`.
type faultCmd struct {
	Add   faultAddCmd   `cmd:"" help:"Add a fault: drop, delay, duplicate or corrupt packets."`
	List  faultListCmd  `cmd:"" help:"List the faults, with what they did."`
	Clear faultClearCmd `cmd:"" help:"Remove one fault, or all."`
}

// faultAddCmd is `goroced fault add`.
type faultAddCmd struct {
	Action string `arg:"" enum:"drop,delay,duplicate,corrupt" help:"drop, delay, duplicate, or corrupt, which makes the ICRC wrong."`

	Direction   string        `placeholder:"DIR" default:"" enum:"in,out," help:"in or out (default: both)."`
	QP          uint32        `complete:"qps" name:"qp" placeholder:"N" help:"Only packets of this queue pair, both ways if it is connected."`
	PeerQP      uint32        `name:"peer-qp" placeholder:"N" help:"Only packets of this queue pair of a peer."`
	Peer        string        `placeholder:"IP" help:"Only packets to and from this peer."`
	Opcode      string        `placeholder:"CLASS" default:"" enum:"request,response,send,write,read,read-response,atomic,ack,cnp," help:"Only request, response, send, write, read, read-response, atomic, ack or cnp packets."`
	PSN         string        `name:"psn" placeholder:"N[-M]" help:"Only packets with this PSN, or one in this range."`
	Delay       time.Duration `placeholder:"D" help:"How long packets are delayed (delay only)."`
	Count       uint64        `short:"n" placeholder:"N" help:"Only this many packets."`
	Probability float64       `short:"p" placeholder:"P" help:"Each packet with this probability (default: 1)."`
	Seed        uint64        `placeholder:"N" help:"Seed for the choice of packets (with -p) and bits (default: random, and printed)."`
	TTL         time.Duration `name:"for" aliases:"ttl" placeholder:"D" default:"10m" help:"Time after which the daemon removes the fault (default: 10m; 0s: never)."`
	adminFlags
}

// Run runs the subcommand.
func (c *faultAddCmd) Run(a *app) error {
	f := admin.Fault{Device: c.Device, Action: c.Action, Direction: c.Direction, Opcode: c.Opcode,
		QP: c.QP, PeerQP: c.PeerQP, Peer: c.Peer, PSN: c.PSN, Count: c.Count, Probability: c.Probability, Seed: c.Seed}
	if c.Delay != 0 {
		f.Delay = c.Delay.String()
	}
	if c.TTL != 0 {
		f.TTL = c.TTL.String()
	}
	added, err := admin.NewClient(c.Socket).AddFault(a.ctx, f)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, &added)
	return err
}

// faultListCmd is `goroced fault list`.
type faultListCmd struct {
	JSON bool `help:"Print JSON."`
	adminFlags
}

// Run runs the subcommand.
func (c *faultListCmd) Run(a *app) error {
	list, err := admin.NewClient(c.Socket).Faults(a.ctx, c.Device)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.out, list)
	}
	for i := range list {
		if _, err := fmt.Fprintln(a.out, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

// faultClearCmd is `goroced fault clear`.
type faultClearCmd struct {
	ID *uint64 `arg:"" optional:"" help:"The fault to remove, as list shows it (default: all)."`
	adminFlags
}

// Run runs the subcommand.
func (c *faultClearCmd) Run(a *app) error {
	client := admin.NewClient(c.Socket)
	n := 1
	var err error
	if c.ID != nil {
		err = client.RemoveFault(a.ctx, c.Device, *c.ID)
	} else {
		n, err = client.ClearFaults(a.ctx, c.Device)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "%d removed\n", n)
	return err
}
