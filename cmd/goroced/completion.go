package main

import (
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/completion"
)

// completionCmd is `goroced completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}. For bash: source <(goroced completion bash)"`
}

// Run runs the subcommand.
func (c *completionCmd) Run(a *app) error {
	script, err := completion.Script(c.Shell, "goroced")
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.out, script)
	return err
}

// completeCmd is `goroced complete`, which the shell scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"What stands on the command line after goroced."`
}

// Run runs the subcommand.
func (c *completeCmd) Run(a *app, parsed *kong.Context) error {
	for _, candidate := range completion.Candidates(parsed.Model.Node, c.Words, values) {
		if _, err := fmt.Fprintln(a.out, candidate); err != nil {
			return err
		}
	}
	return nil
}
