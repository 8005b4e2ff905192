package main

import (
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/explain"
)

// explainCmd is `goroced explain`.
type explainCmd struct {
	Rule   []string `arg:"" optional:"" complete:"rules" help:"Name of a rule, or words to look for; or FILE.txt, a script of your own. Without it all rules are listed."`
	Source bool     `help:"Print the script of the rule, to begin one of your own with."`
	screenFlags
}

// Help is printed under the flags.
func (*explainCmd) Help() string {
	return "`goroced explain psn` lists the rules about PSNs, `goroced explain implied-nak` shows one. Most rules " +
		"are scripts in qp/testdata; `go doc github.com/goroce/goroce/qp/script` has their language, and `goroced " +
		"explain --source psn-wrap >my.txt` writes one to begin with; `goroced explain my.txt` runs one that you " +
		"wrote against the real state machine: a claim that is wrong is shown at its line."
}

// Run runs the subcommand.
func (c *explainCmd) Run(a *app) error {
	switch {
	case c.Source:
		return explain.Source(a.out, strings.Join(c.Rule, " "))
	case len(c.Rule) == 0:
		return explain.List(a.out, c.terminal(a))
	case len(c.Rule) == 1 && explain.IsFile(c.Rule[0]):
		return explain.File(a.out, c.Rule[0], c.terminal(a))
	}
	return explain.Rule(a.out, strings.Join(c.Rule, " "), c.terminal(a))
}
