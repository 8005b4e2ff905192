package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// What is wrong with a setting: the Err of an [Error].
var (
	ErrSyntax     = errors.New("not TOML")
	ErrUnknownKey = errors.New("unknown key")
	ErrType       = errors.New("wrong type")
	ErrValue      = errors.New("not allowed")
	ErrConflict   = errors.New("conflict")
)

// Error says what is wrong with a configuration, and where. [Load] joins all that it
// finds.
type Error struct {
	Source  string // the file's path, the variable's name, the flag, or "" for a default
	Line    int    // in the file, from 1; 0 if it is none
	Key     string // as in the file: "limits.user.qps"; "" if the file is no TOML, or for an unknown variable
	Value   any    // nil for an unknown key
	Allowed string // for people
	Err     error  // ErrSyntax, ErrUnknownKey, ErrType, ErrValue or ErrConflict
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

// display writes a value as TOML has it: strings, numbers, booleans and lists look the same in JSON.
func display(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // an infinite number
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
