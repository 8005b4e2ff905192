package script

import "io"

// Stepper runs a script one line at a time, and lets a program decide which packets are lost: to
// show a script line by line, or to see what happens if a packet is lost that the script delivers.
// A script claims what follows from its own losses, so another decision makes a later line fail,
// unless the script was written for it.
type Stepper struct {
	r     runner
	lines []line // those that are left
	shown []Step // by the present line
	err   error
}

// Start begins to run the script; no line is executed yet. lose, which may be nil, is asked about
// each packet that is to arrive or is to be lost, and reports whether it is lost: p.Lost says what
// the script wants, p.Text which packet it is. A packet that the script delays is asked about when
// it arrives.
func (s *Script) Start(lose func(p Step) bool) *Stepper { return s.start(lose, 64) }

// start is Start with QPs that are asked for batch packets at a time.
func (s *Script) start(lose func(p Step) bool, batch int) *Stepper {
	t := &Stepper{lines: s.lines}
	t.r = runner{s: s, lose: lose, batch: batch, observe: func(step Step) { t.shown = append(t.shown, step) }}
	return t
}

// Step executes the next line and returns the steps that it shows, none or more, also if it fails.
// Behind the last line the error is io.EOF. Any other one is a *Failure, which ends the script:
// Step then returns it again and again.
func (t *Stepper) Step() ([]Step, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.shown = nil
	t.err = t.next()
	return t.shown, t.err
}

// next executes the next line, or checks the end.
func (t *Stepper) next() error {
	r := &t.r
	if len(t.lines) == 0 {
		if err := r.endScene(); err != nil {
			return r.s.fail(r.line.num, r.line.text, "at the end: %w", err)
		}
		return io.EOF
	}
	r.line, t.lines = &t.lines[0], t.lines[1:]
	if r.line.prose {
		r.observe(Step{Kind: Prose, At: r.now, Line: r.line.num, Text: r.line.text})
		return nil
	}
	if err := r.step(r.line.text); err != nil {
		return r.s.fail(r.line.num, r.line.text, "%w", err)
	}
	return nil
}
