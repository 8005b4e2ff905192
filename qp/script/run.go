package script

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goroce/goroce/ib"
)

// Kind says what a Step is.
type Kind uint8

// Kinds of steps.
const (
	Scene  Kind = iota // a scene begins: Text is the configuration of its QPs
	Packet             // a packet is delivered or lost
	Local              // an input or a claim at one side
	Quiet              // the script claims that nothing happens
	Prose              // a paragraph about the next steps
)

// Step is one step of a running script, as shown to an observer.
type Step struct {
	Kind   Kind
	At     ib.Instant
	Line   int
	Left   bool     // Packet: sent by the left side. Local: at the left side
	Lost   bool     // Packet
	Text   string   // the step in the words of the script, without the side
	Reason string   // the script's comment on the step; often empty
	Sides  []string // Scene: names of the left and of the right side
}

// Run runs the script and calls observe, which may be nil, after each step. The error
// is a *Failure.
func (s *Script) Run(observe func(Step)) error { return s.run(observe, 64) }

// run runs the script and asks QPs for batch packets at a time.
func (s *Script) run(observe func(Step), batch int) error {
	for t := s.start(nil, batch); ; {
		steps, err := t.Step()
		for _, step := range steps {
			if observe != nil {
				observe(step)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// runner is the state of a running script.
type runner struct {
	s       *Script
	observe func(Step)
	lose    func(Step) bool // see Script.Start; nil: what the script loses is lost
	batch   int

	line     *line
	now      ib.Instant
	ends     []*endpoint // "us", or "first" and "second", or "left" and "right"
	scripted bool        // the script plays their peers
	areas    map[string]*area
	messages map[string]int // names of messages and their sizes
	wire     []delayed
	claiming bool // the step before was a claim
}

// verb describes the steps that begin with a certain word.
type verb struct {
	claim bool // the step claims an output; other steps are inputs
	sided bool // the step is about one side
	do    func(r *runner, e *endpoint, a *args) error
}

var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"setup":      {do: (*runner).setup},
		"connect":    {do: (*runner).connect},
		"region":     {sided: true, do: (*runner).addRegion},
		"deregister": {sided: true, do: (*runner).deregister},
		"fault":      {sided: true, do: (*runner).fault},
		"set":        {sided: true, do: (*runner).set},
		"post":       {sided: true, do: (*runner).post},
		"srq":        {sided: true, do: (*runner).addSRQ},
		"limit":      {sided: true, do: (*runner).limit},
		"ah":         {sided: true, do: (*runner).addAH},
		"mw":         {sided: true, do: (*runner).addMW},
		"arm":        {sided: true, do: (*runner).arm},
		"modify":     {sided: true, do: (*runner).modify},
		"placed":     {sided: true, do: (*runner).placed},
		"fetched":    {sided: true, do: (*runner).fetched},
		"advance":    {do: (*runner).advance},

		"wc":        {claim: true, sided: true, do: (*runner).claimWC},
		"event":     {claim: true, sided: true, do: (*runner).claimEvent},
		"notify":    {claim: true, sided: true, do: (*runner).claimNotify},
		"mem":       {claim: true, sided: true, do: (*runner).claimMem},
		"state":     {claim: true, sided: true, do: (*runner).claimState},
		"nothing":   {claim: true, do: (*runner).claimNothing},
		"timer":     {claim: true, sided: true, do: (*runner).claimTimer},
		"placing":   {claim: true, sided: true, do: (*runner).claimPlacing},
		"fetching":  {claim: true, sided: true, do: (*runner).claimFetching},
		"persisted": {claim: true, sided: true, do: (*runner).claimPersisted},
		"count":     {claim: true, sided: true, do: (*runner).claimCount},
		"window":    {claim: true, sided: true, do: (*runner).claimWindow},
		"pace":      {claim: true, sided: true, do: (*runner).claimPace},
	}
}

// step executes one line.
func (r *runner) step(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	e, word, rest := r.side(word, rest)
	if arrow, ok := arrows[word]; ok {
		if len(r.ends) == 0 {
			return errNoScene
		}
		return r.cross(e, arrow, rest)
	}
	v, ok := verbs[word]
	switch {
	case !ok:
		return fmt.Errorf("%q is no step; doc.go lists them", word)
	case len(r.ends) == 0 && word != "setup" && word != "connect":
		return errNoScene
	case v.sided && e == nil:
		return errWhichSide(r)
	case !v.claim:
		if err := r.beforeInput(); err != nil {
			return err
		}
	}
	r.claiming = v.claim
	a := newArgs(rest)
	if err := v.do(r, e, a); err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if v.sided {
		text := strings.TrimSpace(word + " " + rest)
		if len(r.ends) > 1 && r.scripted {
			text += " (" + e.name + ")"
		}
		r.show(Step{Kind: Local, Left: r.scripted || e == r.ends[0], Text: text})
	}
	return nil
}

var errNoScene = errors.New("a script begins with setup or connect")

func errWhichSide(r *runner) error {
	return fmt.Errorf("which side? %s or %s", r.ends[0].name, r.ends[1].name)
}

// side takes the name of a side, or of one of two QPs, if there is one.
func (r *runner) side(word, rest string) (*endpoint, string, string) {
	if len(r.ends) == 1 {
		return r.ends[0], word, rest
	}
	for _, e := range r.ends {
		if e.name == word {
			word, rest, _ = strings.Cut(rest, " ")
			return e, word, rest
		}
	}
	return nil, word, rest
}

// show shows a step of the present line to the observer.
func (r *runner) show(s Step) {
	s.At, s.Line = r.now, r.line.num
	if s.Reason == "" {
		s.Reason = r.line.reason
	}
	r.observe(s)
}

// beforeInput is called before each input. If the step before was a claim, a turn of the
// engine ends here, and all its outputs must have been claimed.
func (r *runner) beforeInput() error {
	if !r.claiming {
		return nil
	}
	return r.settle()
}

// settle collects all outputs and returns an error if any has not been claimed.
func (r *runner) settle() error {
	for _, e := range r.ends {
		if err := e.pump(r.now, r.batch); err != nil {
			return err
		}
	}
	for _, e := range r.ends {
		if left := e.unclaimed(r); left != "" {
			return fmt.Errorf("unclaimed before this step, %s: %s", e.name, left)
		}
	}
	return nil
}

// endScene checks that nothing is unclaimed, delayed or in flight at the end of a scene.
func (r *runner) endScene() error {
	if err := r.settle(); err != nil {
		return err
	}
	for _, d := range r.wire {
		return fmt.Errorf("a delayed packet never arrived: %s", r.describe(&d.p))
	}
	for _, a := range r.areas {
		if a.mem == nil || a.unsure {
			continue
		}
		if err := a.differs(0, a.size); err != nil {
			return fmt.Errorf("memory changed that no step claims: %w", err)
		}
	}
	for _, e := range r.ends {
		if packets, bytes := e.flow.InFlight(); e.qp.State() == ib.StateErr && (packets != 0 || bytes != 0) {
			return fmt.Errorf("%s is in ERR and has %d packets, %d bytes in flight", e.name, packets, bytes)
		}
	}
	return nil
}
