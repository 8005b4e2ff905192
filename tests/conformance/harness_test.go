package conformance

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/roce/simtest"
)

// play runs one case of the test's own, here as the active half. It returns the virtual time that this takes, too.
func play(t *testing.T, c Case, o Options) (r Result, took time.Duration) {
	t.Helper()
	suite := cases
	cases = []Case{c}
	defer func() { cases = suite }()
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		here, there := twoHosts(n)
		r = do(t, plan(o)[0], here, there, o)
		took = time.Duration(n.Now())
	})
	return r, took
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
			r, took := play(t, c.Case, Options{Deviations: c.deviations})
			switch {
			case c.err == "" && r.Err != nil, c.err != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.err)):
				t.Errorf("error %v, want %q", r.Err, c.err)
			case !strings.Contains(r.Skip, c.skip) || c.skip == "" && r.Skip != "":
				t.Errorf("skip %q, want %q", r.Skip, c.skip)
			case r.Broken:
				t.Error("the run is broken off")
			}
			if took > time.Second {
				t.Errorf("it took %v, want at most %v: a half has waited for its limit", took, time.Second)
			}
		})
	}
}

// TestDeadline: halves that wait for each other end in time, and one that does not
// even then breaks off the run.
func TestDeadline(t *testing.T) {
	const limit, late = 50 * time.Millisecond, 30 * time.Second
	waits := func(e *End) { hear[int](e, "never told") }
	r, took := play(t, Case{Name: "t/wait", Active: waits, Passive: waits}, Options{Limit: limit})
	if r.Err == nil || r.Broken || !strings.Contains(r.Err.Error(), errDeadline.Error()) || took != limit {
		t.Errorf("waiting halves: %+v after %v, want %v after %v", r, took, errDeadline, limit)
	}
	hangs := func(*End) { time.Sleep(late) }
	for name, c := range map[string]Case{
		"here":    {Name: "t/hang", Active: hangs, Passive: waits},
		"there":   {Name: "t/hang", Active: waits, Passive: hangs},
		"closing": {Name: "t/hang", Alone: func(e *End) { e.own("thing", func() error { hangs(e); return nil }) }},
	} {
		if r, took := play(t, c, Options{Limit: limit}); r.Err == nil || !r.Broken || took > limit+2*grace {
			t.Errorf("%s: %+v after %v, want it broken after %v or soon", name, r, took, limit)
		}
	}
}

// TestHangUp: the other side disappears in the middle of a case.
func TestHangUp(t *testing.T) {
	r, _ := play(t, Case{Name: "t/gone", Active: func(e *End) { hear[int](e, "never told") },
		Passive: func(e *End) { e.s.wire.conn.Close() }}, Options{})
	if r.Err == nil || !r.Broken || !strings.Contains(r.Err.Error(), "control connection") {
		t.Errorf("%+v, want the control connection broken", r)
	}
}

// TestIntroduction: sides that do not fit together say so.
func TestIntroduction(t *testing.T) {
	simtest.Run(t, simtest.Config{}, func(t *testing.T, n *simtest.Net) {
		p, _ := twoHosts(n)
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
			t.Errorf("a row that is not there: %v, want %v and %q", err, ib.ErrInvalid, "no row 7")
		}
	})
}

// meet leads where the other side introduces itself so.
func meet(p Party, said string) error {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		theirs.Write([]byte(said + "\n"))
		io.Copy(io.Discard, theirs)
	}()
	_, err := Lead(ours, p, Options{})
	return err
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
			t.Errorf("case %s: pair %v, alone %v; want one, and a name with a slash", c.Name, pair, alone)
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
