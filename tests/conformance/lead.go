package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// DefaultLimit is the time limit of each half of a case.
const DefaultLimit = time.Minute

// Options configure a run.
type Options struct {
	Deviations []Deviation
	Cases      string        // a pattern for names, as in Deviation.Cases; "" for all
	Part       Part          // of these cases
	Limit      time.Duration // of each half of a case; 0 is DefaultLimit
}

// Part is each Of-th case, from the N-th on, counted from 0. If Of is 0, it is all.
type Part struct{ N, Of int }

// has reports whether the i-th case belongs to the part.
func (p Part) has(i int) bool { return p.Of == 0 || i%p.Of == p.N }

// Leader leads a run: it has the table of deviations and chooses the cases.
type Leader struct {
	s    *session
	opts Options
}

// Lead connects with the server on conn and takes ownership of conn. The caller must Close the Leader; the devices stay
// open.
func Lead(conn net.Conn, p Party, o Options) (*Leader, error) {
	s, err := newSession(conn, p)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("meet the other side: %w", err)
	}
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	return &Leader{s, o}, nil
}

// Close disconnects, which ends the server.
func (l *Leader) Close() { l.s.close() }

// Peer returns the kind and name of the other side's device.
func (l *Leader) Peer() (kind, device string) { return l.s.peer.Kind, l.s.peer.Attr.Name }

// Item is a case with the roles of both sides.
type Item struct {
	c *Case
	// role is the role of the leader's device; "" if the server's device runs the case alone.
	role Role
}

// Name returns the case's name and the role of the leader's device: "active", "passive", or for cases without a
// partner, "here" or "there".
func (i Item) Name() string {
	switch i.role {
	case Alone:
		return i.c.Name + "/here"
	case "":
		return i.c.Name + "/there"
	}
	return i.c.Name + "/" + string(i.role)
}

// Plan returns all items: each pair of halves in both directions, and each case without a partner on both devices.
func (l *Leader) Plan() []Item { return plan(l.opts) }

func plan(o Options) []Item {
	var items []Item
	for i := range cases {
		c := &cases[i]
		if o.Cases != "" && !matchPath(o.Cases, c.Name) || !o.Part.has(i) {
			continue
		}
		if c.Alone != nil {
			items = append(items, Item{c, Alone}, Item{c, ""})
		} else {
			items = append(items, Item{c, Active}, Item{c, Passive})
		}
	}
	return items
}

// roles returns the roles of the two devices; "" for one that does nothing.
func (i Item) roles() (here, there Role) {
	switch i.role {
	case Active:
		return Active, Passive
	case Passive:
		return Passive, Active
	case Alone:
		return Alone, ""
	}
	return "", Alone
}

// Result is the result of an Item. It has passed if Skip and Err are not set.
type Result struct {
	Skip string // why it was skipped
	Err  error
	Note string // deviations that were used
	// Broken says that the run cannot go on.
	Broken bool
}

// Outcome is the result of an Item, as the command prints it with -json.
type Outcome struct {
	Name   string
	Err    string `json:",omitempty"`
	Skip   string `json:",omitempty"`
	Note   string `json:",omitempty"`
	Millis int64
}

// ReadOutcomes parses the output of the command with -json, up to the first line that is not an Outcome.
func ReadOutcomes(printed []byte) ([]Outcome, error) {
	var outcomes []Outcome
	for decoder := json.NewDecoder(bytes.NewReader(printed)); ; {
		var o Outcome
		if err := decoder.Decode(&o); err == io.EOF {
			return outcomes, nil
		} else if err != nil {
			return outcomes, fmt.Errorf("conformance: outcome %d: %w", len(outcomes)+1, err)
		}
		outcomes = append(outcomes, o)
	}
}

// Do runs an item. The caller must run one at a time.
func (l *Leader) Do(ctx context.Context, it Item) Result {
	local, remote := l.rules(it)
	if why := l.leftOut(it, local, remote); why != "" {
		return Result{Skip: why}
	}
	s, limit := l.s, l.opts.Limit
	here, there := it.roles()
	s.newCase()
	ours, theirs := side{name: "here"}, side{name: "there"}
	if there != "" {
		o := order{Case: it.c.Name, Role: there, TimeoutMS: int(limit / time.Millisecond), Rules: remote}
		if err := s.wire.send(message{Run: &o}); err != nil {
			return Result{Err: err, Broken: true}
		}
	}
	if here != "" {
		ours.body, ours.closing = s.play(it.c, here, limit, local)
	}
	if there != "" && !ours.body.Broken {
		theirs.body, theirs.closing = s.reported(ctx, limit)
	}
	return l.judge(slices.Concat(local, remote), []side{ours, theirs})
}

// leftOut returns what an item that is skipped needs; "" if it is not skipped.
func (l *Leader) leftOut(it Item, local, remote []rule) string {
	here, there := it.roles()
	for _, d := range []struct {
		role  Role
		at    string
		hello *hello
	}{{here, "here", &l.s.me}, {there, "there", &l.s.peer}} {
		if lack := it.c.need(d.role) &^ d.hello.Attr.Caps; d.role != "" && lack != 0 {
			return fmt.Sprintf("needs %s, which %s (%s) lacks", capText(lack), d.hello.Attr.Name, d.at)
		}
	}
	for _, r := range slices.Concat(local, remote) {
		if r.Effect.Kind == effectSkip {
			return "needs an end without this deviation: " + l.opts.Deviations[r.Row].Reason
		}
	}
	return ""
}

// reported waits for the server's verdicts.
func (s *session) reported(ctx context.Context, limit time.Duration) (body, closing verdict) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit+4*grace, errDeadline)
	defer cancel()
	err := s.await(ctx, func(b *mailbox) bool {
		if b.finished != nil {
			body = *b.finished
		}
		if b.closed != nil {
			closing = *b.closed
		}
		return b.closed != nil || body.Broken
	})
	if err != nil {
		closing = verdict{Error: err.Error(), Broken: true}
	}
	return body, closing
}

// rules returns the deviations that apply to an item, for each side.
func (l *Leader) rules(it Item) (local, remote []rule) {
	s := l.s
	if it.role == "" {
		remote, _ = rulesFor(l.opts.Deviations, it.c.Name, &s.peer, &s.me, Alone)
		return nil, remote
	}
	return rulesFor(l.opts.Deviations, it.c.Name, &s.me, &s.peer, it.role)
}

// Serve runs what the leader at the other end of conn orders, until the leader disconnects. It takes ownership of conn;
// the device stays open.
func Serve(conn net.Conn, p Party) error {
	s, err := newSession(conn, p)
	if err != nil {
		conn.Close()
		return fmt.Errorf("meet the leader: %w", err)
	}
	defer s.close()
	for o := range s.orders {
		c, err := find(o.Case)
		if err != nil {
			return err
		}
		body, _ := s.play(c, o.Role, time.Duration(o.TimeoutMS)*time.Millisecond, o.Rules)
		if body.Broken {
			return errors.New(body.Error)
		}
	}
	return nil
}
