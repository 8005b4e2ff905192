package config

import (
	"fmt"
	"io"
	"strings"
)

// Setting is the effective value of a key.
type Setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`  // as in a file
	Origin string `json:"origin"` // "default", a file and line, a variable or a flag

	live bool
}

// Settings lists all keys.
func (c *Config) Settings() []Setting {
	all := settings(c)
	for i := range c.Devices {
		all = append(all, deviceSettings(fmt.Sprintf("%s[%d].", deviceKey, i), &c.Devices[i])...)
	}
	list := make([]Setting, len(all))
	for i, s := range all {
		from := "default"
		if o, ok := c.origins[s.key]; ok {
			from = (&Error{Source: o.source, Line: o.line}).place()
		}
		list[i] = Setting{s.key, s.value.get(), from, s.live}
	}
	return list
}

// Show writes the configuration as a file that would result in it; a comment gives the source of each value.
func (c *Config) Show(w io.Writer) error {
	var b strings.Builder
	table := ""
	for _, s := range c.Settings() {
		at := strings.LastIndexByte(s.Key, '.')
		if head := s.Key[:max(at, 0)]; head != table {
			table = head
			name, _, element := strings.Cut(head, "[")
			if element {
				fmt.Fprintf(&b, "\n[[%s]]\n", name)
			} else {
				fmt.Fprintf(&b, "\n[%s]\n", head)
			}
		}
		fmt.Fprintf(&b, "%-40s # %s\n", s.Key[at+1:]+" = "+display(s.Value), s.Origin)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
