package main

import (
	"maps"
	"net"
	"slices"

	"github.com/goroce/goroce/cmd/goroced/internal/completion"
	"github.com/goroce/goroce/cmd/goroced/internal/explain"
)

// values are what shells offer for flags and arguments with the tag "complete", by its value.
var values = map[string]func() []completion.Candidate{
	"docs":    manuals.candidates,
	"schemas": schemas.candidates,
	"rules": func() (list []completion.Candidate) {
		rules := explain.Rules()
		for _, name := range slices.Sorted(maps.Keys(rules)) {
			list = append(list, completion.Candidate{Word: name, Help: rules[name]})
		}
		return list
	},
	"netifs": func() (list []completion.Candidate) {
		all, _ := net.Interfaces() // without them there is nothing to offer
		for _, i := range all {
			list = append(list, completion.Candidate{Word: i.Name, Help: i.Flags.String()})
		}
		return list
	},
}
