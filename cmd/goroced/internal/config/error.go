package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Kinds of problems: the Err of an [Error].
var (
	ErrTooLarge   = errors.New("too large")
	ErrSyntax     = errors.New("not TOML")
	ErrQuotes     = errors.New("lacks its quotes: permissions and durations are strings")
	ErrUnknownKey = errors.New("unknown key")
	ErrType       = errors.New("wrong type")
	ErrValue      = errors.New("not allowed")
	ErrConflict   = errors.New("conflict")
	ErrMissing    = errors.New("not on this machine")
)

// Error is a problem of a configuration. [Load] joins all problems that it finds.
type Error struct {
	Source  string // path of the file, name of the variable, the flag, or "" for a default
	Line    int    // in the file, from 1; 0 otherwise
	Key     string // as in the file: "limits.user.qps"; "" for invalid TOML and unknown variables
	Value   any    // nil for an unknown key
	Meant   string // the key that an unknown one is a misspelling of, if any
	Allowed string // what is allowed
	Err     error  // one of the above
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.place() + ": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key)
		if e.Value != nil {
			fmt.Fprintf(&b, " = %s", display(e.Value))
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Err.Error())
	if e.Meant != "" {
		fmt.Fprintf(&b, ", did you mean %q?", e.Meant)
	}
	if e.Allowed != "" {
		b.WriteString("; allowed: " + e.Allowed)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) place() string {
	if e.Line == 0 {
		return e.Source
	}
	return fmt.Sprintf("%s:%d", e.Source, e.Line)
}

// display formats a value as in TOML: strings, numbers, booleans and lists look the same in JSON.
func display(v any) string {
	if b, ok := v.(bare); ok {
		return string(b)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // an infinite number
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
