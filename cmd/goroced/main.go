// Goroced is RDMA over Converged Ethernet in user space: it demonstrates RoCEv2, uses it with other machines, serves it
// to the programs of this one, and decodes captures. `goroced --help` lists the subcommands.
//
// Exit codes: 0 is success, 1 failure, 2 an invalid command line, 130 the end by Ctrl-C (SIGINT), 143 that by SIGTERM.
// `goroced run` exits as its program does; with 127 if the program or a library of it is missing, 126 if it cannot run.
// Errors are one line on standard error, on a terminal as many as it takes.
//
// This package only has flags, and connects them with the packages under internal, which implement the subcommands.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	exitSignal  = 128 // and the number of the signal, as shells have it
)

// commandLine is what kong parses: a field for each subcommand.
type commandLine struct {
	Demo demoCmd `cmd:"" help:"Show RoCEv2 at work between two hosts in this process."`
	linuxCommands
	Decode     decodeCmd     `cmd:"" help:"Explain the RoCEv2 packets of a capture file."`
	Explain    explainCmd    `cmd:"" help:"Explain a rule of the protocol by running it."`
	Docs       docsCmd       `cmd:"" help:"Show the documents."`
	Schema     schemaCmd     `cmd:"" help:"Print JSON Schemas of what the commands print as JSON."`
	Completion completionCmd `cmd:"" help:"Print a script that lets the shell complete command lines."`
	Complete   completeCmd   `cmd:"" hidden:"" help:"Answer the script of completion."`
	Man        manCmd        `cmd:"" help:"Write manual pages, one for each command, and one of the configuration."`
	Version    versionCmd    `cmd:"" help:"Print the version."`
	Help       helpCmd       `cmd:"" help:"Print the help of a command."`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
}

// app is passed to every subcommand.
type app struct {
	ctx context.Context // ends with SIGINT and SIGTERM
	out io.Writer
	err io.Writer // for messages to people

	term term.Terminal // what out is
}

// columns returns the width of out if it is a terminal, 0 if it is not.
func (a *app) columns() int {
	if a.term.Real {
		return a.term.Columns()
	}
	return 0
}

// messages is standard error, for messages to people.
var messages = term.Messages(os.Stderr, os.Getenv)

// The main goroutine has the process's main thread to itself until run lets go of it.
func init() { runtime.LockOSThread() }

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, killer := untilSignal()
	parser := newParser(new(commandLine))
	if len(args) == 0 || args[0] == "help" {
		args = append(args[min(1, len(args)):], "--help")
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return report(parseError(err), exitUsage)
	}
	// Linux prefers the main thread when it delivers a signal to the process, even while a page fault in a client's
	// memory blocks that thread in the kernel; the signal then waits as long as the fault. So `serve` keeps the main
	// thread for the main goroutine, which touches no memory of clients.
	if parsed.Command() != "serve" {
		runtime.UnlockOSThread()
	}
	err = parsed.Run(&app{ctx, os.Stdout, messages, term.Of(os.Stdout, os.Getenv)})
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return report(interruption(err), exitSignal+killer())
	}
	err = asTyped(err, parsed.Selected())
	var coded interface{ ExitStatus() int }
	if errors.As(err, &coded) {
		return report(err, coded.ExitStatus())
	}
	return report(err, exitFailure)
}

// newParser returns the parser of command lines, which stores them in cl.
func newParser(cl *commandLine) *kong.Kong {
	parser := kong.Must(cl, kong.Name("goroced"), kong.Vars{"version": readVersion().String()},
		kong.Description("RDMA over Converged Ethernet (RoCEv2) in user space. Start with `goroced demo`."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), addresses, durations, sizes, bitrates)
	addExamples(parser.Model.Node)
	return parser
}

// untilSignal returns a context that ends with SIGINT and SIGTERM, and killer, which returns the number of the signal
// that has ended it. A second signal kills the process.
func untilSignal() (ctx context.Context, killer func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var number int
	go func() {
		s := <-signals
		signal.Stop(signals)
		number = int(s.(syscall.Signal))
		cancel()
	}()
	return ctx, func() int {
		<-ctx.Done()
		return number
	}
}

// interruption is the error of a subcommand that a signal has ended, with what it was doing, if it says that.
func interruption(err error) error {
	var wait interface{ Awaited() string }
	if errors.As(err, &wait) {
		return fmt.Errorf("interrupted while waiting for %s", wait.Awaited())
	}
	if text := err.Error(); text != context.Canceled.Error() {
		return fmt.Errorf("interrupted: %s", strings.TrimSuffix(text, ": "+context.Canceled.Error()))
	}
	return errors.New("interrupted")
}

// report prints an error on one line.
func report(err error, code int) int {
	fmt.Fprintf(messages, "goroced: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
