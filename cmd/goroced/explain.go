package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/explain"
)

// explainCmd is `goroced explain`.
type explainCmd struct {
	Rule     []string `arg:"" optional:"" complete:"rules" help:"Name of a rule, or words to look for; or FILE.txt, a script of your own; or a chapter of --course, a word of --glossary. Without it all are listed."`
	Course   bool     `xor:"what" help:"A course of 12 chapters: list them, or show the one with this number."`
	Play     bool     `help:"With --course: run all lessons of the chapter, too."`
	Answer   string   `placeholder:"TEXT" help:"With --course: check the answer to the chapter's question."`
	Glossary bool     `xor:"what" help:"What a word means, and which chapters and rules are about it."`
	Source   bool     `xor:"what" help:"Print the script of the rule, to begin one of your own with."`
	screenFlags
}

// Help is printed under the flags.
func (*explainCmd) Help() string {
	return "`goroced explain --course` is where to begin. `goroced explain psn` lists the rules about PSNs, `goroced " +
		"explain implied-nak` shows one, and says whether it is the specification's (IBTA), of Linux, or what only " +
		"goroce does. Most rules are scripts in qp/testdata; `go doc github.com/goroce/goroce/qp/script` has their " +
		"language, and `goroced explain --source psn-wrap >my.txt` writes one to begin with; `goroced explain " +
		"my.txt` runs one that you wrote against the real state machine: a claim that is wrong is shown at its line."
}

// Run runs the subcommand.
func (c *explainCmd) Run(a *app) error {
	words := strings.Join(c.Rule, " ")
	switch {
	case c.Course:
		return c.course(a, words)
	case c.Play || c.Answer != "":
		return &usage{text: "explain: --play and --answer are for a chapter: --course 1"}
	case c.Glossary:
		return explain.Glossary(a.out, words, c.terminal(a))
	case c.Source:
		return explain.Source(a.out, words)
	case len(c.Rule) == 0:
		return explain.List(a.out, c.terminal(a))
	case len(c.Rule) == 1 && explain.IsFile(c.Rule[0]):
		return explain.File(a.out, c.Rule[0], c.terminal(a))
	}
	return explain.Rule(a.out, words, c.terminal(a))
}

// course lists the chapters, shows one, or checks an answer.
func (c *explainCmd) course(a *app, chapter string) error {
	if chapter == "" && !c.Play && c.Answer == "" {
		return explain.Course(a.out, c.terminal(a))
	}
	n, err := strconv.Atoi(chapter)
	switch {
	case err != nil || n < 1 || n > explain.Chapters():
		return &usage{text: fmt.Sprintf("explain: --course takes a number from 1 to %d, not %q", explain.Chapters(),
			chapter)}
	case c.Answer != "":
		return explain.Answer(a.out, n, c.Answer, c.terminal(a))
	}
	return explain.Chapter(a.out, n, c.Play, c.terminal(a))
}
