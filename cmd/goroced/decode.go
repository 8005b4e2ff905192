package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// decodeFlags say what is shown of packets, and how.
type decodeFlags struct {
	Errors  bool   `short:"e" help:"Only packets with which something is wrong."`
	Verbose bool   `short:"v" help:"Every field of every header."`
	JSON    bool   `help:"Print a JSON object a packet, and one for the summary."`
	Ladder  bool   `short:"l" help:"Draw a ladder diagram of each connection, at the end."`
	Conn    int    `placeholder:"N" help:"Only the connection to which the summary gives this number."`
	Packets string `placeholder:"N[-M]" help:"Only these packets, by number; the summary is about all."`
	screenFlags
}

// options returns what the flags ask for.
func (c *decodeFlags) options(a *app, name string, qp uint32) (decode.Options, error) {
	o := decode.Options{Name: name, QP: ib.QPN(qp), Conn: c.Conn, Errors: c.Errors, Verbose: c.Verbose, JSON: c.JSON,
		Ladder: c.Ladder, Terminal: c.terminal(a)}
	if c.Packets == "" {
		return o, nil
	}
	first, last, several := strings.Cut(c.Packets, "-")
	if !several {
		last = first
	}
	var err1, err2 error
	o.First, err1 = strconv.Atoi(first)
	if last != "" || !several {
		o.Last, err2 = strconv.Atoi(last)
	}
	if err1 != nil || err2 != nil || o.First < 1 || last != "" && o.Last < o.First {
		return o, driver.Refuse("decode", "--packets", c.Packets, "a number from 1 on, or a range like 10-50 or 10-",
			ib.ErrInvalid)
	}
	return o, nil
}

// decodeCmd is `goroced decode`.
type decodeCmd struct {
	File string `arg:"" help:"pcap or pcapng file; - is standard input."`
	QP   uint32 `name:"qp" placeholder:"N" help:"Only connections of this queue pair."`
	decodeFlags
}

// Run runs the subcommand.
func (c *decodeCmd) Run(a *app) error {
	o, err := c.options(a, c.File, c.QP)
	if err != nil {
		return err
	}
	f := os.Stdin
	if c.File != "-" {
		if f, err = os.Open(c.File); err != nil {
			return err
		}
		defer f.Close()
	}
	_, err = decode.Run(a.out, f, o)
	return err
}
