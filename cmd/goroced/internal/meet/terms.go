package meet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Two ends of goroced tell each other their options, in addition to what the C tools exchange. Each sends its terms,
// and then its verdict: nothing, or why it does not play. So both ends know at once when they do not fit, and either
// knows what the other says. How the ends find out that both are goroced is up to the tool.
//
// Terms are JSON, see Terms. A text is sent as its length (4 bytes, big endian) and blocks of textBlock bytes, the last
// one padded with zeros. Both ends send equally many blocks.
const (
	// TermsVersion is the version of the terms.
	TermsVersion = 1

	textBlock = 64 // what the ends may have room for when they meet by rdma_cm
	maxText   = 4096
)

var (
	// ErrVersion: the peer's terms have another version.
	ErrVersion = errors.New("the peer tells its options in another way")
	// ErrRefused: the peer does not play.
	ErrRefused = errors.New("the peer refused")
	// ErrMismatch: options that must be equal differ.
	ErrMismatch = errors.New("the options of the two ends differ")
)

// Terms are what an end tells the other of its options.
type Terms struct {
	Version int               `json:"version"`
	Serve   bool              `json:"serve,omitempty"`   // the end is a server that takes the options of its clients
	Options map[string]string `json:"options,omitempty"` // by flag, as the command line takes them
}

// Swap sends a message and receives one of the same length. The client sends first.
type Swap func(mine, theirs []byte) error

// Agree sends this end's terms and receives the peer's. Then decide says why this end does not play, or nil, and both
// ends learn what the other says. decide may take some time, of which the peer's patience is the limit.
//
// Errors: decide's, ErrVersion, ErrRefused with what the peer says, ErrExchange.
func Agree(swap Swap, mine *Terms, decide func(theirs *Terms) error) error {
	text, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	said, err := swapText(swap, string(text))
	if err != nil {
		return err
	}
	theirs, verdict := decodeTerms(said)
	if verdict == nil {
		verdict = decide(theirs)
	}
	why := ""
	if verdict != nil {
		why = verdict.Error()
	}
	said, err = swapText(swap, why[:min(len(why), maxText)])
	switch {
	case verdict != nil: // the peer may have left before it knew
		return verdict
	case err != nil:
		return err
	case said != "":
		return fmt.Errorf("%w: %s", ErrRefused, said)
	}
	return nil
}

func decodeTerms(text string) (*Terms, error) {
	var version struct{ Version int }
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return nil, fmt.Errorf("%w: the peer's options are no JSON: %w", ErrExchange, err)
	}
	if version.Version != TermsVersion {
		return nil, fmt.Errorf("%w: in version %d, this end in version %d; use the same goroced at both ends",
			ErrVersion, version.Version, TermsVersion)
	}
	var terms Terms
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&terms); err != nil {
		return nil, fmt.Errorf("%w: the peer's options: %w", ErrExchange, err)
	}
	return &terms, nil
}

// swapText swaps texts of at most maxText bytes. What it returns can be printed.
func swapText(swap Swap, mine string) (theirs string, err error) {
	var length [4]byte
	if err := swap(binary.BigEndian.AppendUint32(nil, uint32(len(mine))), length[:]); err != nil {
		return "", err
	}
	n := int(binary.BigEndian.Uint32(length[:]))
	if n < 0 || n > maxText {
		return "", fmt.Errorf("%w: the peer sends a text of %d bytes, at most %d are allowed", ErrExchange, n, maxText)
	}
	out := make([]byte, (max(n, len(mine))+textBlock-1)/textBlock*textBlock)
	in := make([]byte, len(out))
	copy(out, mine)
	for i := 0; i < len(out); i += textBlock {
		if err := swap(out[i:i+textBlock], in[i:i+textBlock]); err != nil {
			return "", err
		}
	}
	return strings.Map(printable, string(in[:n])), nil
}

// printable keeps a peer from writing more than text to a terminal.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return -1
}

// Option is an option of a tool that its ends tell each other. O has all options of the tool.
type Option[O any] struct {
	Flag string
	Text func(*O) string        // the value as the command line takes it; "true" and "false" for a flag without one
	Set  func(*O, string) error // the inverse
	// Equal reports whether both ends need the same value, which the options of either end decide.
	Equal func(here, there *O) bool
}

// Table has the options of a tool, in the order in which people are told of them.
type Table[O any] []Option[O]

// Terms returns the terms of an end.
func (list Table[O]) Terms(o *O) *Terms {
	t := &Terms{Version: TermsVersion, Options: map[string]string{}}
	for i := range list {
		t.Options[list[i].Flag] = list[i].Text(o)
	}
	return t
}

// Take sets the options that the terms have. Error: ErrExchange if one is unknown, missing, or not what it may be.
func (list Table[O]) Take(t *Terms, o *O) error {
	for i := range list {
		value, ok := t.Options[list[i].Flag]
		if !ok {
			return fmt.Errorf("%w: the peer does not tell its %s", ErrExchange, list[i].Flag)
		}
		if err := list[i].Set(o, value); err != nil {
			return fmt.Errorf("%w: the peer's %s is %q: %w", ErrExchange, list[i].Flag, value, err)
		}
	}
	for flag := range t.Options {
		if !slices.ContainsFunc(list, func(o Option[O]) bool { return o.Flag == flag }) {
			return fmt.Errorf("%w: the peer has an option %q, which this end does not know", ErrExchange, flag)
		}
	}
	return nil
}

// Flags returns the command line's flags for the options that differ from those of base: " -s 4096 -b".
func (list Table[O]) Flags(o, base *O) string {
	var b strings.Builder
	for i := range list {
		switch value := list[i].Text(o); {
		case value == list[i].Text(base) || !strings.HasPrefix(list[i].Flag, "-"):
		case value == "true":
			fmt.Fprintf(&b, " %s", list[i].Flag)
		default:
			fmt.Fprintf(&b, " %s %s", list[i].Flag, value)
		}
	}
	return b.String()
}

// Compare returns nil if the ends fit, else an error (ErrMismatch) that names each option that differs, with both
// values. peer is "the client" or "the server"; here and there are the commands with which one of the ends would fit.
func (list Table[O]) Compare(mine, theirs *O, peer, here, there string) error {
	var differ []string
	for i := range list {
		o := &list[i]
		a, b := o.Text(mine), o.Text(theirs)
		if a == b || !o.Equal(mine, theirs) {
			continue
		}
		differ = append(differ, fmt.Sprintf("%s is %s here and %s at %s", o.Flag, onOff(a), onOff(b), peer))
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; run here `%s`, or there `%s`", ErrMismatch, strings.Join(differ, ", "), here, there)
}

// onOff names the values of flags without a value.
func onOff(value string) string {
	switch value {
	case "true":
		return "on"
	case "false":
		return "off"
	}
	return value
}
