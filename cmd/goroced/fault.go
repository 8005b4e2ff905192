//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
)

// faultCmd is `goroced fault`.
type faultCmd struct {
	Add   faultAddCmd   `cmd:"" help:"Add a fault: what a bad network does to packets."`
	List  faultListCmd  `cmd:"" help:"List the faults, with what they did."`
	Clear faultClearCmd `cmd:"" help:"Remove one fault, or all."`
}

// faultAddCmd is `goroced fault add`.
type faultAddCmd struct {
	Action string `arg:"" enum:"drop,delay,duplicate,corrupt,reorder,mark,truncate,limit" help:"drop; delay; duplicate; corrupt, which makes the ICRC wrong; reorder, by which the next packet overtakes; mark with Congestion Experienced (ECN); truncate, of received packets; or limit, a bottleneck of --rate."`

	Direction   string        `placeholder:"DIR" default:"" enum:"in,out," help:"in or out (default: both)."`
	QP          uint32        `complete:"qps" name:"qp" placeholder:"N" help:"Only packets of this queue pair, both ways if it is connected."`
	PeerQP      uint32        `name:"peer-qp" placeholder:"N" help:"Only packets of this queue pair of a peer."`
	Peer        string        `placeholder:"IP" help:"Only packets to and from this peer."`
	Opcode      string        `placeholder:"CLASS" default:"" enum:"request,response,send,write,read,read-response,atomic,ack,cnp," help:"Only request, response, send, write, read, read-response, atomic, ack or cnp packets."`
	PSN         string        `name:"psn" placeholder:"N[-M]" help:"Only packets with this PSN, or one in this range."`
	Larger      int           `type:"size" placeholder:"BYTES" help:"Only packets of more bytes, from their IP header on, up to 65535. drop --larger 1500 is an MTU black hole."`
	BurstBegin  float64       `placeholder:"P" help:"Only in bursts, one of which begins with a packet with this probability (more than 0, up to 1): with 0.01 there are 100 packets between two, on average. Needs --burst-end; -p is that of a packet of a burst."`
	BurstEnd    float64       `placeholder:"P" help:"Probability that a burst ends before its next packet: with 0.1 bursts have 10 packets, on average."`
	Delay       time.Duration `placeholder:"D" help:"How long packets are delayed, up to 10s (delay), or wait for the next at most (reorder; default 1ms)."`
	Jitter      time.Duration `placeholder:"D" help:"Delay them for a random time of up to this besides, up to 10s, so that they overtake each other (delay only)."`
	Rate        int64         `type:"bitrate" placeholder:"BITS" help:"Rate of the bottleneck in bits a second, each way, such as 100M or 2.5G, 1M to 1T (limit only)."`
	Buffer      time.Duration `placeholder:"D" help:"Packets that would have to wait for longer before the bottleneck are lost, up to 1s (limit only; default 1ms)."`
	Count       uint64        `short:"n" placeholder:"N" help:"Only this many packets."`
	Probability float64       `short:"p" placeholder:"P" help:"Each packet with this probability (default: 1)."`
	Seed        uint64        `placeholder:"N" help:"Seed for the choice of packets (with -p) and bits (default: random, and printed)."`
	TTL         time.Duration `name:"for" aliases:"ttl" placeholder:"D" default:"10m" help:"Time after which the daemon removes the fault (default: 10m; 0s: never)."`
	adminFlags
}

// Run runs the subcommand.
func (c *faultAddCmd) Run(a *app) error {
	f := admin.Fault{Device: c.Device, Action: c.Action, Direction: c.Direction, Opcode: c.Opcode,
		QP: c.QP, PeerQP: c.PeerQP, Peer: c.Peer, PSN: c.PSN, Larger: c.Larger, BurstBegin: c.BurstBegin,
		BurstEnd: c.BurstEnd, Rate: c.Rate, Count: c.Count, Probability: c.Probability, Seed: c.Seed}
	for _, d := range []struct {
		to *string
		d  time.Duration
	}{{&f.Delay, c.Delay}, {&f.Jitter, c.Jitter}, {&f.Buffer, c.Buffer}, {&f.TTL, c.TTL}} {
		if d.d != 0 {
			*d.to = d.d.String()
		}
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
