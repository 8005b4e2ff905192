package perf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
)

// terms are the options that two ends of goroce tell each other. Those that need not be equal are for a server that
// takes the options of its clients.
var terms = meet.Table[Options]{
	{Flag: "test",
		Text: func(o *Options) string { return fmt.Sprintf("%v %v", o.Op, o.Test) },
		Set: func(o *Options, s string) error {
			op, test, _ := strings.Cut(s, " ")
			return errors.Join(o.Op.UnmarshalText([]byte(op)), o.Test.UnmarshalText([]byte(test)))
		},
		Equal: always},
	{Flag: "-c",
		Text:  func(o *Options) string { return o.Service.String() },
		Set:   func(o *Options, s string) error { return o.Service.UnmarshalText([]byte(s)) },
		Equal: always},
	flagTerm("-a", func(o *Options) *bool { return &o.All }, together),
	intTerm("-s", func(o *Options) *int { return &o.Size }, sizesClash),
	intTerm("-n", func(o *Options) *int { return &o.Iters },
		func(here, there *Options) bool {
			return here.Duration == 0 && there.Duration == 0 && together(here, there)
		}),
	{Flag: "-D",
		Text: func(o *Options) string { return strconv.FormatFloat(o.Duration.Seconds(), 'f', -1, 64) },
		Set: func(o *Options, s string) (err error) {
			o.Duration, err = time.ParseDuration(s + "s")
			return err
		},
		Equal: together},
	intTerm("-q", func(o *Options) *int { return &o.NumQP }, always),
	flagTerm("-b", func(o *Options) *bool { return &o.Bidirectional }, always),
	flagTerm("--report_gbits", func(o *Options) *bool { return &o.Gbits },
		func(here, there *Options) bool { return here.Bidirectional && there.Bidirectional }), // they add their results
	intTerm("-t", func(o *Options) *int { return &o.TxDepth }, never),
	intTerm("-r", func(o *Options) *int { return &o.RxDepth }, never),
	intTerm("-l", func(o *Options) *int { return &o.PostList }, never),
	intTerm("-I", func(o *Options) *int { return &o.Inline }, never),
	{Flag: "-A",
		Text:  func(o *Options) string { return o.AtomicOp.String() },
		Set:   func(o *Options, s string) error { return o.AtomicOp.UnmarshalText([]byte(s)) },
		Equal: never},
}

func always(_, _ *Options) bool { return true }
func never(_, _ *Options) bool  { return false }

// together reports whether the programs of both ends count messages. The server of a one-sided test only has memory. If
// the tests differ, nothing else matters.
func together(here, there *Options) bool {
	return sameTest(here, there) && (here.bothCount() || there.bothCount())
}

func sameTest(here, there *Options) bool { return here.Op == there.Op && here.Test == there.Test }

func (o *Options) bothCount() bool { return o.Op == Send || o.bothSend() }

// sizesClash reports whether different sizes do not work: a server that only has memory needs no more than enough.
func sizesClash(here, there *Options) bool {
	server, client := here, there
	if !here.server() {
		server, client = there, here
	}
	return together(here, there) || sameTest(here, there) && client.Size > server.Size
}

func intTerm(flag string, field func(*Options) *int, equal func(_, _ *Options) bool) meet.Option[Options] {
	return meet.Option[Options]{Flag: flag, Equal: equal,
		Text: func(o *Options) string { return strconv.Itoa(*field(o)) },
		Set: func(o *Options, s string) error {
			v, err := strconv.ParseInt(s, 10, 32)
			*field(o) = int(v)
			return err
		}}
}

func flagTerm(flag string, field func(*Options) *bool, equal func(_, _ *Options) bool) meet.Option[Options] {
	return meet.Option[Options]{Flag: flag, Equal: equal,
		Text: func(o *Options) string { return strconv.FormatBool(*field(o)) },
		Set: func(o *Options, s string) (err error) {
			*field(o), err = strconv.ParseBool(s)
			return err
		}}
}

// commandLine returns the command of an end with these options. host is " HOST" for a client.
func (o *Options) commandLine(host string) string {
	base := Defaults(o.Op, o.Test)
	base.TxDepth, base.RxDepth, base.PostList, base.Inline = o.TxDepth, o.RxDepth, o.PostList, o.Inline // as they like
	if o.All {
		base.Size = largest
	}
	text := fmt.Sprintf("goroced perf %v %v", o.Op, o.Test)
	if o.CM {
		text += " -R"
	}
	if o.Port != base.Port {
		text += fmt.Sprintf(" -p %d", o.Port)
	}
	return text + terms.Flags(o, &base) + host
}

// settle tells the peer this end's options, and learns the peer's. A server that takes the options of its clients takes
// them; otherwise both ends refuse what does not fit.
func (s *session) settle() error {
	mine := terms.Terms(s.o)
	if s.visit != nil {
		mine = meet.ServerTerms(s.visit.limits)
	}
	swap := func(mine, theirs []byte) error { return s.meeting.swap(mine, theirs, s.o.Timeout) }
	return meet.Agree(swap, mine, func(theirs *meet.Terms) error {
		switch {
		case theirs.Serve && s.o.server():
			return fmt.Errorf("%w: both ends are servers", ErrExchange)
		case theirs.Serve:
			s.maxTime = theirs.MaxTime()
			return nil
		case s.visit != nil:
			return s.take(theirs)
		}
		return s.compare(theirs)
	})
}

// compare refuses a peer whose options do not fit.
func (s *session) compare(theirs *meet.Terms) error {
	peer, hostHere, hostThere := "the client", "", " HOST"
	there := *s.o
	there.Host = "client"
	if !s.o.server() {
		peer, hostHere, hostThere = "the server", " "+s.o.Host, ""
		there.Host = ""
	}
	if err := terms.Take(theirs, &there); err != nil {
		return err
	}
	return terms.Compare(s.o, &there, peer, there.commandLine(hostHere), s.o.commandLine(hostThere))
}

// take makes the options of a client those of this end, if its server allows them, and waits for its turn.
func (s *session) take(theirs *meet.Terms) error {
	o := *s.o
	if err := terms.Take(theirs, &o); err != nil {
		return err
	}
	o.TxDepth, o.RxDepth = min(o.TxDepth, s.attr.MaxQPWR), min(o.RxDepth, s.attr.MaxQPWR)
	o.PostList, o.Inline = min(o.PostList, o.TxDepth), min(o.Inline, s.attr.MaxInline)
	o.normalize(&s.attr, &s.port)
	if err := s.visit.limits.Check(o.Size, o.NumQP, 2*o.NumQP*areaSize(&o, minCycle), o.Duration); err != nil {
		return err
	}
	if err := o.check(&s.attr, &s.port); err != nil {
		return err
	}
	stay := s.visit.limits.Time
	if o.Duration > 0 {
		stay = o.Duration
	}
	if err := s.visit.client.Turn(s.visit.ctx, stay+2*o.Timeout); err != nil {
		return err
	}
	*s.o, s.t = o, o.traits()
	fmt.Fprintf(s.o.Out, "client %v: %s\n", s.visit.client.RemoteAddr(), s.o.commandLine(" HOST"))
	return nil
}
