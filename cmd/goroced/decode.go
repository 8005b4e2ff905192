package main

import (
	"os"

	"github.com/goroce/goroce/cmd/goroced/internal/decode"
	"github.com/goroce/goroce/ib"
)

// decodeCmd is `goroced decode`.
type decodeCmd struct {
	File    string `arg:"" help:"pcap or pcapng file; - is standard input."`
	QP      uint32 `name:"qp" placeholder:"N" help:"Only connections of this queue pair."`
	Errors  bool   `short:"e" help:"Only packets with which something is wrong."`
	Verbose bool   `short:"v" help:"Every field of every header."`
	JSON    bool   `help:"Print a JSON object a packet, and one for the summary."`
	Ladder  bool   `short:"l" help:"Draw a ladder diagram of each connection."`
	screenFlags
}

// Run runs the subcommand.
func (c *decodeCmd) Run(a *app) error {
	f := os.Stdin
	if c.File != "-" {
		var err error
		if f, err = os.Open(c.File); err != nil {
			return err
		}
		defer f.Close()
	}
	_, err := decode.Run(a.out, f, decode.Options{Name: c.File, QP: ib.QPN(c.QP), Errors: c.Errors, Verbose: c.Verbose,
		JSON: c.JSON, Ladder: c.Ladder, Terminal: c.terminal(a)})
	return err
}
