// Package bugreport collects what somebody who is to find a fault asks for first, in one text.
package bugreport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// patience is how long each command may take.
const patience = 20 * time.Second

// Write runs commands one after another, and writes what each prints under a heading, passed through hide. One that
// fails, or is not there, does not keep the others from running.
func Write(ctx context.Context, w io.Writer, commands [][]string, hide func(string) string) error {
	for _, c := range commands {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := io.WriteString(w, hide(section(ctx, c))); err != nil {
			return err
		}
	}
	return nil
}

// section returns what a command prints.
func section(ctx context.Context, command []string) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // of a child that keeps its output open
	err := cmd.Run()
	text := fmt.Sprintf("## %s\n\n%s", strings.Join(command, " "), &out)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if err != nil {
		text += fmt.Sprintf("(%v)\n", err)
	}
	return text + "\n"
}

// Patterns of what lets others forge packets or tells whose machine it is: addresses, keys, PSNs and QP numbers.
var (
	address = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b|(?i)\b[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){2,7}`)
	number  = regexp.MustCompile(`\b0x[0-9a-fA-F]+`)
	psn     = regexp.MustCompile(`(?i)\b(psn|qpn|lqpn|rqpn|lkey|rkey)([ =])\d+`)
	clock   = regexp.MustCompile(`^\d{2}:\d{2}:\d{2}$`)
)

// Hider returns a function that hides addresses, keys, PSNs and QP numbers. An address has the same name each time, so
// that one sees which are equal.
func Hider() func(string) string {
	names := map[string]string{}
	return func(s string) string {
		s = address.ReplaceAllStringFunc(s, func(a string) string {
			if clock.MatchString(a) || strings.HasPrefix(a, "127.") || a == "0.0.0.0" {
				return a
			}
			if names[a] == "" {
				names[a] = fmt.Sprintf("address%d", len(names)+1)
			}
			return names[a]
		})
		s = number.ReplaceAllString(s, "0x#")
		return psn.ReplaceAllString(s, "$1$2#")
	}
}
