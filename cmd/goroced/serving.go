//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/cmd/goroced/internal/meet"
)

// serving is the word for a server that takes clients in turn, where the operation of a test or a host stands.
const serving = "serve"

// servingFlags are the limits of a server that takes clients in turn.
type servingFlags struct {
	MaxSize   int           `type:"size" default:"16M" placeholder:"BYTES" help:"serve: longest message that a client may ask for (default ${default})." group:"Serve"`
	MaxQP     int           `name:"max-qp" default:"256" placeholder:"N" help:"serve: most queue pairs of a client (default ${default})." group:"Serve"`
	MaxMemory int           `type:"size" default:"256M" placeholder:"BYTES" help:"serve: most memory for the messages of a client (default ${default})." group:"Serve"`
	MaxTime   time.Duration `default:"5m" placeholder:"D" help:"serve: longest run of a client (default ${default})." group:"Serve"`
}

// limits returns the limits. It refuses flags that the clients decide.
func (f *servingFlags) limits(parsed *kong.Context) (meet.Limits, error) {
	if f.MaxSize <= 0 || f.MaxQP <= 0 || f.MaxMemory <= 0 || f.MaxTime <= 0 {
		return meet.Limits{}, &usage{errLimits, errLimits.Error() + helpOf(parsed.Selected())}
	}
	for _, p := range parsed.Path {
		if p.Flag != nil && (p.Flag.Tag.Has("both") || p.Flag.Tag.Has("theirs")) {
			name := "--" + p.Flag.Name
			if p.Flag.Short != 0 {
				name = "-" + string(p.Flag.Short)
			}
			return meet.Limits{}, &usage{errTheirs, fmt.Sprintf("%s %v%s", name, errTheirs, helpOf(parsed.Selected()))}
		}
	}
	return meet.Limits{Size: f.MaxSize, NumQP: f.MaxQP, Memory: f.MaxMemory, Time: f.MaxTime}, nil
}

var (
	errLimits = errors.New("--max-size, --max-qp, --max-memory and --max-time must be more than 0")
	errTheirs = errors.New("is for the clients: a server takes the options that each client has; give it there")
)
