package config

import (
	"fmt"
	"io"
	"strings"
)

// Setting is a key as it is in effect.
type Setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`  // as a file writes it
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

// Show writes the configuration as a file that would make it, each value with a comment
// that says where it comes from.
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
