package conformance

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
)

// play runs one case of the test's own, here as the active half.
func play(t *testing.T, c Case, o Options) Result {
	t.Helper()
	suite := cases
	cases = []Case{c}
	defer func() { cases = suite }()
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	leader, server := net.Pipe()
	served := make(chan error, 1)
	peer := loopback(t, 1)
	go func() { served <- Serve(server, peer) }()
	l, err := Lead(leader, loopback(t, 1), o)
	if err != nil {
		t.Fatal(err)
	}
	r := l.Do(t.Context(), l.Plan()[0])
	l.Close()
	if err := <-served; err != nil && !r.Broken {
		t.Error(err)
	}
	return r
}

func nothing(*End) {}

// failWrite is a case whose completion has another status than it wants.
var failWrite = Case{Name: "t/status", Active: func(e *End) {
	c := e.connect()
	c.post(opWrite.request(1, nil, remote{}))
	c.sq.fails(1, ib.WCRemAccessErr)
}, Passive: func(e *End) { e.connect(grants(0)) }}

// rowOf returns a table with one row for the cases of TestVerdicts.
func rowOf(role Role, effect Effect) []Deviation {
	return []Deviation{{"goroce/*", role, "t/*", effect, "reason"}}
}

// TestVerdicts: whatever goes wrong in a half is reported once, as the error of the half at fault,
// and ends both halves long before the deadline.
func TestVerdicts(t *testing.T) {
	boom := func(e *End) { e.fatalf("boom: %w", ib.ErrInvalid) }
	waits := func(e *End) { hear[int](e, "never told") }
	polls := func(e *End) { e.newQueue(1).next() }
	for _, c := range []struct {
		name string
		Case
		deviations []Deviation
		err, skip  string // text that the result must have
	}{
		{name: "passes", Case: Case{Active: nothing, Passive: nothing}},
		{name: "active fails", Case: Case{Active: boom, Passive: waits}, err: "here: boom: invalid argument"},
		{name: "passive fails", Case: Case{Active: polls, Passive: boom}, err: "there: boom: invalid argument"},
		{name: "both fail", Case: Case{Active: boom, Passive: boom}, err: "there: boom"},
		{name: "alone fails", Case: Case{Alone: boom}, err: "here: boom"},
		{name: "peer ends early", Case: Case{Active: waits, Passive: nothing},
			err: `ended without telling "never told"`},
		{name: "panic", Case: Case{Active: func(*End) { panic("oops") }, Passive: waits}, err: "panic: oops"},
		{name: "goroutine fails", Case: Case{Active: func(e *End) { e.parallel(3, func(int) { boom(e) }) },
			Passive: waits}, err: "here: boom"},
		{name: "skipped", Case: Case{Active: waits, Passive: func(e *End) { e.skipf("not today") }}, skip: "not today"},
		{name: "lacks", Case: Case{Active: nothing, Passive: nothing, Needs: Needs{Passive: 1 << 50}}, skip: "lacks"},
		{name: "not closed", Case: Case{Alone: func(e *End) { e.own("thing", func() error { return ib.ErrBusy }) }},
			err: "close thing: in use"},
		{name: "left open", Case: Case{Alone: func(e *End) { _, _ = e.pd().RegMR(ib.MRInit{Buf: make([]byte, 8)}) }},
			err: "close PD: "},
		{name: "guard byte", Case: Case{Alone: func(e *End) { m := e.mem(8, 0); m.whole[guard+8] ^= 1; m.check() }},
			err: "offset 8"},
		{name: "status", Case: failWrite, err: "remote invalid request error, want remote access error"},

		{name: "status deviates", Case: failWrite, deviations: rowOf(Passive,
			Status(ib.WCRemAccessErr, ib.WCRemInvReqErr))},
		{name: "of the other role", Case: failWrite, deviations: rowOf(Alone,
			Status(ib.WCRemAccessErr, ib.WCRemInvReqErr)), err: "want remote access"},
		{name: "to another status", Case: failWrite, deviations: rowOf(Active,
			Status(ib.WCRemAccessErr, ib.WCRemOpErr)), err: "want remote access"},
		{name: "stale status", Case: Case{Active: nothing, Passive: nothing}, deviations: rowOf("", Status(1, 2)),
			err: "stale deviation"},
		{name: "fails as told", Case: Case{Active: boom, Passive: waits}, deviations: rowOf(Active, Fails("boom"))},
		{name: "fails otherwise", Case: Case{Active: boom, Passive: waits}, deviations: rowOf(Active, Fails("bang")),
			err: "boom"},
		{name: "stale failure", Case: Case{Active: nothing, Passive: nothing}, deviations: rowOf(Active, Fails("boom")),
			err: "stale deviation"},
		{name: "left out", Case: Case{Active: boom, Passive: boom}, deviations: rowOf(Passive, Skip()),
			skip: "deviation: reason"},
		{name: "stale CM status", Case: Case{Active: nothing, Passive: nothing}, deviations: rowOf("", CMStatus(3, 28)),
			err: "stale deviation"},
		{name: "no event", Case: Case{Alone: func(e *End) { e.event(ib.EventCQErr, nil) }},
			deviations: rowOf(Alone, NoEvent(ib.EventCQErr))},
		{name: "stale event", Case: Case{Alone: overrun}, deviations: rowOf(Alone, NoEvent(ib.EventSRQLimit)),
			err: "stale deviation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.Case.Name = "t/" + c.name
			begun := time.Now()
			r := play(t, c.Case, Options{Deviations: c.deviations})
			switch {
			case c.err == "" && r.Err != nil, c.err != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.err)):
				t.Errorf("error %v, want %q", r.Err, c.err)
			case !strings.Contains(r.Skip, c.skip) || c.skip == "" && r.Skip != "":
				t.Errorf("skip %q, want %q", r.Skip, c.skip)
			case r.Broken:
				t.Error("the run is broken off")
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it took %v: a half has waited for its limit", took)
			}
		})
	}
}

// TestDeadline: halves that wait for each other end in time, and one that does not
// even then breaks off the run.
func TestDeadline(t *testing.T) {
	waits := func(e *End) { hear[int](e, "never told") }
	r := play(t, Case{Name: "t/wait", Active: waits, Passive: waits}, Options{Limit: 50 * time.Millisecond})
	if r.Err == nil || r.Broken || !strings.Contains(r.Err.Error(), errDeadline.Error()) {
		t.Errorf("waiting halves: %+v", r)
	}
	defer func(d time.Duration) { grace = d }(grace)
	grace = 50 * time.Millisecond
	release := make(chan bool)
	defer close(release)
	hangs := func(*End) { <-release }
	for name, c := range map[string]Case{
		"here":    {Name: "t/hang", Active: hangs, Passive: waits},
		"there":   {Name: "t/hang", Active: waits, Passive: hangs},
		"closing": {Name: "t/hang", Alone: func(e *End) { e.own("thing", func() error { <-release; return nil }) }},
	} {
		if r := play(t, c, Options{Limit: 50 * time.Millisecond}); r.Err == nil || !r.Broken {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestHangUp: the other side disappears in the middle of a case.
func TestHangUp(t *testing.T) {
	r := play(t, Case{Name: "t/gone", Active: func(e *End) { hear[int](e, "never told") },
		Passive: func(e *End) { e.s.wire.conn.Close() }}, Options{})
	if r.Err == nil || !r.Broken || !strings.Contains(r.Err.Error(), "control connection") {
		t.Errorf("%+v", r)
	}
}

// TestIntroduction: sides that do not fit together say so.
func TestIntroduction(t *testing.T) {
	meet := func(p Party, said string) error {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		go func() {
			theirs.Write([]byte(said + "\n"))
			buf := make([]byte, 1<<16)
			for {
				if _, err := theirs.Read(buf); err != nil {
					return
				}
			}
		}()
		_, err := Lead(ours, p, Options{})
		return err
	}
	p := loopback(t, 1)
	for _, c := range []struct {
		said, want string
	}{
		{`{"hello":{"Suite":"other"}}`, errSuite.Error()},
		{`{"hello":{"Suite":"` + digest() + `"}}`, "two families"},
		{`{"run":{}}`, "did not introduce itself"},
		{`hello`, "invalid character"},
	} {
		if err := meet(p, c.said); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.said, err, c.want)
		}
	}
	p.GIDIndex = 7
	if err := meet(p, ""); !errors.Is(err, ib.ErrInvalid) || !strings.Contains(err.Error(), "no row 7") {
		t.Errorf("a row that is not there: %v", err)
	}
}

// TestCases: each case has a name of its own, halves for two or for one, and the
// rows of the tables are for cases that exist.
func TestCases(t *testing.T) {
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("two cases %s", c.Name)
		}
		names[c.Name] = true
		pair := c.Active != nil && c.Passive != nil && c.Alone == nil
		alone := c.Active == nil && c.Passive == nil && c.Alone != nil
		if !pair && !alone || !strings.Contains(c.Name, "/") || strings.ContainsAny(c.Name, " \t") {
			t.Errorf("case %s: pair %v, alone %v", c.Name, pair, alone)
		}
	}
	for _, d := range Deviations {
		found := false
		for _, c := range cases {
			if (c.Alone != nil) == (d.Role == Alone) && matchPath(d.Cases, c.Name) {
				found = true
			}
		}
		if !found || d.Reason == "" {
			t.Errorf("the row for %s, %s, %s is for no case, or has no reason", d.Kind, d.Role, d.Cases)
		}
	}
}
