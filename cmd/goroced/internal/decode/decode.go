package decode

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/trace/capfile"
	"github.com/goroce/goroce/roce/trace/track"
)

// Options select what Run prints. With the zero value it prints a line for each packet.
type Options struct {
	Name    string // of the file, for errors and the summary
	QP      ib.QPN // only connections with this queue pair; 0 for all
	Conn    int    // only the connection that the summary gives this number; 0 for all
	First   int    // only packets from this number on; the summary is about all
	Last    int    // only packets up to this number; 0 for all
	Errors  bool   // only packets with problems
	Verbose bool   // every field, and also packets that are not RoCEv2
	JSON    bool   // a JSON object for each packet, and one for the summary
	Ladder  bool   // a ladder diagram for each connection instead of lines

	term.Terminal // what it prints to
}

// check returns an error if the options contradict each other.
func (o *Options) check() error {
	if o.Ladder && (o.JSON || o.Verbose || o.Errors) {
		return driver.Refuse("decode", "Ladder", true, "a ladder, or JSON, verbose or errors-only lines", ib.ErrInvalid)
	}
	return nil
}

// printer prints one form of output. packet is called for each packet that the options select.
type printer interface {
	packet(*packet) error
	summary(*Summary) error
}

// Run reads a capture file from r, prints it to w, and returns the summary.
//
// If the file is damaged or ends within a packet, Run prints the packets before that, with the summary, and returns a
// *capfile.Error. Memory is bounded, except that Ladder keeps the lines of the first 100,000 packets.
func Run(w io.Writer, r io.Reader, opts Options) (Summary, error) {
	if opts.Name == "" {
		opts.Name = "capture"
	}
	if err := opts.check(); err != nil {
		return Summary{}, err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	in, err := capfile.NewReader(opts.Name, flushing{r, out})
	if err != nil {
		return Summary{}, err
	}
	d := decoder{opts: opts}
	d.out = newPrinter(out, &opts, &d.tracker)
	readErr := d.all(in)
	if readErr != nil && !errors.As(readErr, new(*capfile.Error)) {
		return d.sum, readErr
	}
	d.finish()
	if err := d.out.summary(&d.sum); err != nil {
		return d.sum, err
	}
	if err := out.Flush(); err != nil {
		return d.sum, err
	}
	return d.sum, readErr
}

// flushing is a reader that first writes out what was printed of that which it has read before. So packets are shown as
// they come, and a file is printed in pieces.
type flushing struct {
	io.Reader
	out *bufio.Writer
}

func (f flushing) Read(b []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.Reader.Read(b)
}

// newPrinter returns the printer for the options.
func newPrinter(w *bufio.Writer, opts *Options, tracker *track.Tracker) printer {
	switch {
	case opts.JSON:
		return newJSONPrinter(w)
	case opts.Ladder:
		return &ladderPrinter{w: w, opts: opts, tracker: tracker}
	}
	return &textPrinter{w: w, term: opts.Terminal, verbose: opts.Verbose}
}

// decoder is the state of Run.
type decoder struct {
	opts    Options
	out     printer
	copies  copies
	tracker track.Tracker
	sum     Summary
	first   ib.Instant
}

// all handles the packets of the file.
func (d *decoder) all(in *capfile.Reader) error {
	var raw capfile.Packet
	for {
		switch err := in.Next(&raw); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if raw.Num == 1 {
			d.first = raw.At
		}
		if !raw.Link.Known() {
			return &capfile.Error{File: d.opts.Name, Packet: raw.Num, Err: capfile.ErrFormat,
				Detail: fmt.Sprintf("link type %v; want Ethernet, raw IP, Linux cooked (SLL, SLL2) or BSD loopback",
					raw.Link)}
		}
		var p packet
		p.read(&raw)
		p.since = raw.At - d.first
		parts := p.split()
		if parts == nil {
			parts = []packet{p}
		}
		for i := range parts {
			if err := d.one(&parts[i]); err != nil {
				return err
			}
		}
	}
}

// one handles one packet.
func (d *decoder) one(p *packet) error {
	p.copyOf = d.copies.add(p)
	// Receivers drop packets with a wrong ICRC, whose PSN may be corrupted, too. But if all ICRCs are wrong, somebody
	// has rewritten the addresses.
	if p.copyOf == 0 && p.err == nil && (p.icrc != icrcWrong || d.sum.ICRC.Right == 0) {
		p.effect = d.tracker.Add(p.num, p.at, &p.frame.Outer, &p.pkt)
	}
	d.sum.count(p)
	if !d.wanted(p) {
		return nil
	}
	return d.out.packet(p)
}

// wanted reports whether the options select a packet.
func (d *decoder) wanted(p *packet) bool {
	o := &d.opts
	switch {
	case p.num < o.First || o.Last > 0 && p.num > o.Last:
		return false
	case p.other:
		return o.Verbose && !o.Errors && o.QP == 0 && o.Conn == 0
	case p.copyOf > 0 && !o.Verbose && !o.JSON:
		return false
	case o.Errors && !p.problem():
		return false
	case o.QP == 0 && o.Conn == 0:
		return true
	case p.err != nil:
		return false
	}
	c := d.conn(p)
	if o.Conn > 0 && (c == nil || c.Num != o.Conn) {
		return false
	}
	h := p.effect.Handshake
	return o.QP == 0 || p.pkt.DestQP == o.QP || c != nil && c.Has(o.QP) ||
		h != nil && (h.Active.QPN == o.QP || h.Passive.QPN == o.QP)
}

// conn returns the connection of a packet, and of a message of connection managers the one that they make, if it is
// known already.
func (d *decoder) conn(p *packet) *track.Conn {
	if p.effect.Handshake != nil {
		if c := d.tracker.Conn(p.effect.Handshake); c != nil {
			return c
		}
	}
	if p.effect.Flow == nil {
		return nil
	}
	return p.effect.Flow.Conn
}

// finish completes the summary.
func (d *decoder) finish() {
	d.sum.Name = d.opts.Name
	d.sum.Untracked = d.tracker.Untracked
	for _, c := range d.tracker.Conns() {
		if (d.opts.QP == 0 || c.Has(d.opts.QP)) && (d.opts.Conn == 0 || c.Num == d.opts.Conn) {
			d.sum.Connections = append(d.sum.Connections, newConnection(c))
		}
	}
}
