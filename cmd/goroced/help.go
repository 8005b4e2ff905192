package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goroce/goroce/cmd/goroced/internal/similar"
	"github.com/goroce/goroce/ib"
)

// helpCmd is `goroced help`. It is never run: run makes it the --help of the command that it names.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command; without one all are listed."`
}

// notInEnum is the parser's error for a value that is not one of a list.
var notInEnum = regexp.MustCompile(`must be one of (\S+) but got "([^"]*)"`)

// didYouMean returns a suggestion for a value that is not one of those allowed, "" if none is like it. For commands and
// flags the parser has one itself.
func didYouMean(err error) string {
	var word string
	var names []string
	var attr *ib.AttrError
	if m := notInEnum.FindStringSubmatch(err.Error()); m != nil {
		word, names = m[2], strings.Split(strings.ReplaceAll(m[1], `"`, ""), ",")
	} else if errors.As(err, &attr) {
		word, names = fmt.Sprint(attr.Value), strings.Split(attr.Allowed, ", ")
	}
	if name := similar.Meant(word, names); name != "" {
		return fmt.Sprintf(", did you mean %q?", name)
	}
	return ""
}
