//go:build linux

package dropin

import (
	"path/filepath"
	"strings"

	"github.com/goroce/goroce/internal/socket"
)

// Environment are the variables that lead a program in C to the daemon.
type Environment struct {
	Socket    string // path of the daemon's socket
	Libraries string // directory, as Libraries returns it
}

// EnvVar is an environment variable. If List is set, Value is put before the present value, with a colon between.
type EnvVar struct {
	Name, Value string
	List        bool
}

// Variables returns the variables.
func (e *Environment) Variables() []EnvVar {
	return []EnvVar{
		{socket.ClientVariable, e.Socket, false},
		{"LD_LIBRARY_PATH", e.Libraries, true},
		{"LD_PRELOAD", filepath.Join(e.Libraries, Sys), true},
	}
}

// Of returns environ, which has the form of os.Environ, with the variables set. The present value of a list follows the
// new one.
func (e *Environment) Of(environ []string) []string {
	env := append([]string{}, environ...)
	for _, v := range e.Variables() {
		value, kept := v.Value, env[:0]
		for _, old := range env {
			had, ok := strings.CutPrefix(old, v.Name+"=")
			switch {
			case !ok:
				kept = append(kept, old)
			case v.List && had != "" && had != v.Value && !strings.HasPrefix(had, v.Value+":"):
				value += ":" + had
			case v.List && had != "":
				value = had
			}
		}
		env = append(kept, v.Name+"="+value)
	}
	return env
}
