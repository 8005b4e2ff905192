package main

import (
	"fmt"
	"os"

	"github.com/goroce/goroce/cmd/goroced/internal/term"
	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
	"github.com/goroce/goroce/roce/link/wrap"
)

// faultFlags configure faults.
type faultFlags struct {
	Drop float64 `placeholder:"P" help:"Drop each sent packet with this probability." group:"Faults"`
	Seed uint64  `default:"1" help:"Seed that determines which packets are dropped." group:"Faults"`
}

func (f *faultFlags) config() (wrap.FaultConfig, error) {
	if !(f.Drop >= 0 && f.Drop < 1) {
		return wrap.FaultConfig{}, driver.Refuse("faults", "--drop", f.Drop, "0 to less than 1", ib.ErrInvalid)
	}
	return wrap.FaultConfig{Drop: f.Drop, Seed: f.Seed}, nil
}

// createCapture creates a capture file; it returns nil if name is empty.
func createCapture(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("capture file: %w", err)
	}
	return f, nil
}

// screenFlags are the flags of subcommands that draw.
type screenFlags struct {
	Width int  `placeholder:"N" help:"Columns to fill (default: the terminal's; without one 80)."`
	ASCII bool `help:"Draw without Unicode characters, as it is where the locale is not UTF-8."`
}

// terminal returns the terminal that the flags ask for.
func (f *screenFlags) terminal(a *app) term.Terminal {
	t := a.term
	if f.Width > 0 {
		t.Width = f.Width
	}
	t.ASCII = t.ASCII || f.ASCII
	return t
}
