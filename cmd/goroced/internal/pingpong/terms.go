package pingpong

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
	"github.com/goroce/goroce/ib"
)

// Two goroce ends tell each other their options (meet.Agree) before they exchange addresses. A client does not know
// what its server is, so it sends its addresses as the C tools do, but writes the PSN of the first in upper case: C
// tools do not care. A goroce server answers such an address with a line, the greeting, as long as an address. The
// client repeats the greeting, behind its addresses, both tell their options, and begin with the addresses from the
// start.
const (
	greetingText = "goroced: tell me your options"

	markPSN            = 0xA00000 // in all PSNs, so that they have a letter
	markFrom, markUpTo = 12, 18   // where the PSN is in an address
)

func greeting() []byte {
	return append([]byte(greetingText), make([]byte, addressLen-len(greetingText))...)
}

// mark marks the first of a client's addresses.
func mark(msg []byte) {
	copy(msg[markFrom:markUpTo], bytes.ToUpper(msg[markFrom:markUpTo]))
}

// marked reports whether an address is that of a client that can tell its options.
func marked(msg []byte) bool {
	const letters = "ABCDEF"
	return bytes.ContainsAny(msg[markFrom:markUpTo], letters) && !bytes.ContainsAny(msg[:markFrom], letters) &&
		!bytes.ContainsAny(msg[markUpTo:], letters)
}

// terms are the options that two ends of goroce tell each other.
var terms = meet.Table[Options]{
	{Flag: "--service",
		Text:  func(o *Options) string { return o.Service.String() },
		Set:   func(o *Options, s string) error { return o.Service.UnmarshalText([]byte(s)) },
		Equal: func(_, _ *Options) bool { return true }},
	intTerm("-s", func(o *Options) *int { return &o.Size }),
	intTerm("-m", func(o *Options) *int { return (*int)(&o.MTU) }),
	intTerm("-q", func(o *Options) *int { return &o.NumQP }),
	intTerm("-n", func(o *Options) *int { return &o.Iters }),
	{Flag: "-c",
		Text: func(o *Options) string { return strconv.FormatBool(o.Check) },
		Set: func(o *Options, s string) (err error) {
			o.Check, err = strconv.ParseBool(s)
			return err
		},
		Equal: serverChecks},
}

func sameService(here, there *Options) bool { return here.Service == there.Service }

// serverChecks: a server that does not check returns what it got, which is what a client that checks wants.
func serverChecks(here, there *Options) bool {
	return sameService(here, there) && (here.Host == "" && here.Check || there.Host == "" && there.Check)
}

func intTerm(flag string, field func(*Options) *int) meet.Option[Options] {
	return meet.Option[Options]{Flag: flag, Equal: sameService,
		Text: func(o *Options) string { return strconv.Itoa(*field(o)) },
		Set: func(o *Options, s string) error {
			v, err := strconv.ParseInt(s, 10, 32)
			*field(o) = int(v)
			return err
		}}
}

// commandLine returns the command of an end with these options. host is " HOST" for a client.
func (o *Options) commandLine(host string) string {
	base := Defaults(o.Service)
	base.Service = RC
	text := "goroced pingpong"
	if o.Port != base.Port {
		text += fmt.Sprintf(" -p %d", o.Port)
	}
	return text + terms.Flags(o, &base) + host
}

// introduce tells a goroce peer this end's options, and refuses options that do not fit. A client has sent its
// addresses when it returns. maxTime is how long a server lets its clients play, 0 if that is not known.
func (e *endpoint) introduce(conn *meet.Conn) (maxTime time.Duration, err error) {
	conn.Limit(e.o.Timeout)
	decide := func(theirs *meet.Terms) error {
		maxTime = theirs.MaxTime()
		return e.o.compare(theirs)
	}
	if e.o.Host == "" {
		_, err := welcome(conn, e.o, terms.Terms(e.o), decide)
		return 0, err
	}
	t := e.o.Service.traits()
	msg := encodeAddresses(e.local, t.lines)
	if e.o.mute {
		return 0, conn.Send(msg)
	}
	mark(msg)
	if err := conn.Send(msg); err != nil {
		return 0, err
	}
	if line, err := conn.Peek(addressLen); err != nil || !bytes.Equal(line, greeting()) {
		return 0, nil // what came is an address, or no more comes
	}
	if err := conn.Receive(make([]byte, addressLen)); err != nil {
		return 0, err
	}
	if err := conn.Send(greeting()); err != nil {
		return 0, err
	}
	swap := func(mine, theirs []byte) error {
		if err := conn.Send(mine); err != nil {
			return err
		}
		return conn.Receive(theirs)
	}
	if err := meet.Agree(swap, terms.Terms(e.o), decide); err != nil {
		return 0, err
	}
	conn.Limit(e.o.Timeout)
	return maxTime, conn.Send(encodeAddresses(e.local, t.lines))
}

// welcome is the server's part: it tells its terms if the client can tell its options, and reports whether it can.
func welcome(conn *meet.Conn, o *Options, mine *meet.Terms, decide func(*meet.Terms) error) (talks bool, err error) {
	line, err := conn.Peek(addressLen)
	if err != nil || !marked(line) || o.mute {
		return false, nil // the exchange finds what is wrong
	}
	if err := conn.Send(greeting()); err != nil {
		return true, err
	}
	line = make([]byte, addressLen)
	for n := 0; !bytes.Equal(line, greeting()); n++ {
		if n > srqLines {
			return true, fmt.Errorf("%w: the client does not answer the greeting", ErrExchange)
		}
		if err := conn.Receive(line); err != nil {
			return true, err
		}
	}
	swap := func(mine, theirs []byte) error {
		if err := conn.Receive(theirs); err != nil {
			return err
		}
		return conn.Send(mine)
	}
	err = meet.Agree(swap, mine, decide)
	conn.Limit(o.Timeout)
	return true, err
}

// compare refuses a peer whose options do not fit.
func (o *Options) compare(theirs *meet.Terms) error {
	if theirs.Serve && o.Host != "" {
		return nil
	}
	peer, hostHere, hostThere := "the client", "", " HOST"
	there := *o
	there.Host = "client"
	if o.Host != "" {
		peer, hostHere, hostThere = "the server", " "+o.Host, ""
		there.Host = ""
	}
	if err := terms.Take(theirs, &there); err != nil {
		return err
	}
	return terms.Compare(o, &there, peer, there.commandLine(hostHere), o.commandLine(hostThere))
}

// take makes the options of a client those of this end, if the limits allow them.
func (o *Options) take(theirs *meet.Terms, dev ib.Device, limits *meet.Limits) error {
	if err := terms.Take(theirs, o); err != nil {
		return err
	}
	if err := limits.Check(o.Size, o.NumQP, 0, 0); err != nil {
		return err
	}
	if err := o.check(dev); err != nil {
		return err
	}
	return limits.Check(o.Size, o.NumQP, (o.areas()+1)*(o.Service.traits().headroom+o.Size), 0)
}
