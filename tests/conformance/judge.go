package conformance

import (
	"errors"
	"fmt"
	"strings"
)

// side is the report of one side.
type side struct {
	name          string
	body, closing verdict
}

// judge makes a result of the verdicts of both sides, and checks that deviations that were announced have occurred.
func (l *Leader) judge(rules []rule, sides []side) (r Result) {
	used := map[int]bool{}
	for _, s := range sides {
		for _, v := range []verdict{s.body, s.closing} {
			r.Broken = r.Broken || v.Broken
			if v.Skip != "" {
				r.Skip = v.Skip
			}
			for _, row := range v.Used {
				used[row] = true
			}
		}
	}
	if r.Err = joined(sides); r.Broken || r.Skip != "" {
		return r
	}
	noted := map[int]bool{}
	for _, rule := range rules {
		if !noted[rule.Row] {
			noted[rule.Row] = true
			l.hold(&r, rule, used[rule.Row])
		}
	}
	return r
}

// joined joins the errors of both sides. An error that a half only passes on is not counted as its own, but adds where
// the half was.
func joined(sides []side) error {
	var errs, echoes []error
	for _, s := range sides {
		for _, v := range []verdict{s.body, s.closing} {
			switch {
			case v.Error == "":
			case v.Echo:
				echoes = append(echoes, fmt.Errorf("%s, cut short: %s", s.name, v.Error))
			default:
				errs = append(errs, fmt.Errorf("%s: %s", s.name, v.Error))
			}
		}
	}
	if len(errs) == 0 && (sides[0].body.Skip != "" || sides[1].body.Skip != "") {
		return nil
	}
	return errors.Join(append(errs, echoes...)...)
}

// hold checks a deviation that was announced: it must have been used, or its error must have occurred, which is then
// removed from r.
func (l *Leader) hold(r *Result, rule rule, used bool) {
	d := &l.opts.Deviations[rule.Row]
	if d.Effect.Kind == effectFails && r.Err != nil && strings.Contains(r.Err.Error(), d.Effect.Text) {
		r.Err, used = nil, true
	}
	switch {
	case used:
		r.Note += fmt.Sprintf("deviation of %s: %v: %s\n", d.Kind, d.Effect, d.Reason)
	case r.Err == nil && !d.Effect.Rare:
		r.Err = fmt.Errorf("stale deviation, remove it or mend it: %s, %s: %v (%s)", d.Kind, d.Cases, d.Effect,
			d.Reason)
	}
}
