package main

import "github.com/goroce/goroce/cmd/goroced/internal/explain"

// explainCmd is `goroced explain`.
type explainCmd struct {
	Rule string `arg:"" optional:"" help:"Which rule; without it all are listed."`
	ladderFlags
}

// Run runs the subcommand.
func (c *explainCmd) Run(a *app) error {
	if c.Rule == "" {
		return explain.List(a.out)
	}
	return explain.Rule(a.out, c.Rule, explain.Options{Width: c.columns(), ASCII: c.ASCII})
}
