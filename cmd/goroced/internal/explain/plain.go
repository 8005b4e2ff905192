package explain

import (
	"strings"
	"time"

	"github.com/goroce/goroce/roce/trace"
)

// plain tells a step of a script that is no packet in words.
func plain(text string) string {
	words := strings.Fields(before(text))
	if len(words) == 0 {
		return text
	}
	verb, rest := words[0], words[1:]
	for i, w := range rest {
		if d, err := time.ParseDuration(w); err == nil {
			rest[i] = trace.Elapsed(d.Nanoseconds())
		}
	}
	if tell, ok := told[verb]; ok {
		return tell(rest)
	}
	return strings.Join(append([]string{verb}, rest...), " ")
}

// told has how steps are told, by their verbs.
var told = map[string]func(words []string) string{
	"wc":        behind("completion:"),
	"mem":       behind("memory:"),
	"event":     behind("event:"),
	"notify":    behind("completion queue event:"),
	"count":     behind("counter:"),
	"window":    behind("congestion window, in packets:"),
	"pace":      behind("pace, in Mb/s:"),
	"persisted": behind("made persistent:"),
	"placing":   behind("writes to slow memory under way:"),
	"fetching":  behind("reads of slow memory under way:"),
	"fault":     behind("from here on every access fails to"),
	"timer": func(words []string) string {
		if words[0] == "none" {
			return "no timer runs"
		}
		return "the timer runs out in " + strings.Join(words, " ")
	},
	"placed":  ended("written"),
	"fetched": ended("read"),
}

func behind(text string) func([]string) string {
	return func(words []string) string { return text + " " + strings.Join(words, " ") }
}

// ended tells of the end of an access to slow memory: words are those behind placed and fetched.
func ended(done string) func([]string) string {
	return func(words []string) string {
		text := "slow memory is " + done
		for _, w := range words {
			if n, ok := strings.CutPrefix(w, "nth="); ok {
				text += ", number " + n + " of what is under way"
			} else if w == "fails" {
				text = strings.Replace(text, "is "+done, "cannot be "+done, 1)
			}
		}
		return text
	}
}

// before writes an address before a region as R-1, not R+-1.
func before(text string) string { return strings.ReplaceAll(text, "+-", "-") }
