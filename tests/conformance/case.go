package conformance

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goroce/goroce/ib"
)

// Case is one rule of the verbs, with two halves or one.
type Case struct {
	// Name states the rule, topic first: "keys/remote/write/stale".
	Name string
	// Needs are the capabilities that the devices need.
	Needs Needs
	// Active and Passive are the halves of a pair.
	Active, Passive func(*End)
	// Alone is the whole case if it needs no partner; then the others are nil.
	Alone func(*End)
}

// Needs has capabilities. If a device does not have one, the case is skipped.
type Needs struct {
	Active, Passive ib.DeviceCaps // of the device in that role; for Alone, Active counts
}

// both returns Needs for both devices, or the only one.
func both(c ib.DeviceCaps) Needs { return Needs{c, c} }

// half returns the function of a role.
func (c *Case) half(r Role) func(*End) {
	switch r {
	case Active:
		return c.Active
	case Passive:
		return c.Passive
	}
	return c.Alone
}

// need returns the capabilities that the device in a role needs.
func (c *Case) need(r Role) ib.DeviceCaps {
	if r == Passive {
		return c.Needs.Passive
	}
	return c.Needs.Active
}

// find returns the case of that name.
func find(name string) (*Case, error) {
	if i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == name }); i >= 0 {
		return &cases[i], nil
	}
	return nil, fmt.Errorf("no case %q: %w", name, ib.ErrInvalid)
}

// digest identifies the suite, so that both sides run the same one.
func digest() string {
	var text []byte
	for i := range cases {
		c := &cases[i]
		text = append(text, c.Name...)
		text = binary.BigEndian.AppendUint64(append(text, 0), uint64(c.Needs.Active))
		text = binary.BigEndian.AppendUint64(text, uint64(c.Needs.Passive))
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x", sum[:8])
}

// List writes the names of all cases with their needs.
func List(w io.Writer) error {
	for i := range cases {
		c := &cases[i]
		kind := "pair"
		if c.Alone != nil {
			kind = "alone"
		}
		if _, err := fmt.Fprintf(w, "%-5s %s%s\n", kind, c.Name, needText(c.Needs.Active|c.Needs.Passive)); err != nil {
			return err
		}
	}
	return nil
}

// capNames are the capabilities that cases may need.
var capNames = []struct {
	bit  ib.DeviceCaps
	name string
}{
	{ib.CapMemWindow, "MemWindow"}, {ib.CapXRC, "XRC"}, {ib.CapLocalInv, "LocalInv"},
	{ib.CapMemWindow2B, "MemWindow2B"},
	{ib.CapFlushGlobal, "FlushGlobal"}, {ib.CapFlushPersistent, "FlushPersistent"}, {ib.CapAtomicWrite, "AtomicWrite"},
	{ib.CapMulticast, "Multicast"}, {ib.CapRereg, "Rereg"}, {ib.CapTimestamp, "Timestamp"}, {ib.CapCM, "CM"},
}

func capText(c ib.DeviceCaps) string {
	var names []string
	for _, n := range capNames {
		if c&n.bit != 0 {
			names = append(names, n.name)
			c &^= n.bit
		}
	}
	if c != 0 {
		names = append(names, fmt.Sprintf("%#x", uint64(c)))
	}
	return strings.Join(names, ", ")
}

func needText(c ib.DeviceCaps) string {
	if c == 0 {
		return ""
	}
	return " (needs " + capText(c) + ")"
}
