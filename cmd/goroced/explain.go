package main

import "github.com/goroce/goroce/cmd/goroced/internal/explain"

// explainCmd is `goroced explain`.
type explainCmd struct {
	Rule string `arg:"" optional:"" help:"Which rule; without it all are listed."`
	screenFlags
}

// Run runs the subcommand.
func (c *explainCmd) Run(a *app) error {
	if c.Rule == "" {
		return explain.List(a.out, c.terminal(a))
	}
	return explain.Rule(a.out, c.Rule, c.terminal(a))
}
