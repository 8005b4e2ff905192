package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/ib"
)

// usage is an invalid command line: what is wrong with it, in the words in which it was typed, and whose help to read.
type usage struct {
	err  error
	text string
}

func (u *usage) Error() string   { return u.text }
func (u *usage) Unwrap() error   { return u.err }
func (u *usage) ExitStatus() int { return exitUsage }

// parseError returns the error of a command line that the parser refuses.
func parseError(err error) error {
	var node *kong.Node
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		for _, p := range parse.Context.Path {
			if n := p.Node(); n != nil {
				node = n
			}
		}
	}
	text := noValue.ReplaceAllString(err.Error(), "$1 wants a value")
	var attr *ib.AttrError
	if name, _, _ := strings.Cut(err.Error(), ": "); errors.As(err, &attr) { // "--service: pingpong: Service is ..."
		text = refusal(attr, name)
	}
	return &usage{err, text + didYouMean(err) + helpOf(node)}
}

// noValue is what the parser says of a flag without its value.
var noValue = regexp.MustCompile(`^(--?\S+): (?:missing value, )?expected .* but got "EOL" \(<EOL>\)$`)

// asTyped returns the error of a subcommand. If a package has refused the value of a flag or an argument, by the name
// of its own option and before it did anything, the command line is invalid, and the error names the flag. The name of
// a device is not: devices come and go.
func asTyped(err error, node *kong.Node) error {
	var attr *ib.AttrError
	if node == nil || !errors.As(err, &attr) || attr.Err != ib.ErrInvalid ||
		err.Error() != attr.Error() && err.Error() != attr.Op+": "+attr.Error() {
		return err
	}
	name := flagOf(node, attr.Attr)
	if name == "" || name == "--device" {
		return err
	}
	return &usage{err, refusal(attr, name) + didYouMean(err) + helpOf(node)}
}

// refusal says that the value of a flag is refused.
func refusal(e *ib.AttrError, flag string) string {
	value := fmt.Sprint(e.Value)
	if value == "" {
		value = `""`
	}
	return fmt.Sprintf("%s is %s; allowed: %s", flag, value, e.Allowed)
}

// helpOf names the help of a command.
func helpOf(node *kong.Node) string {
	path := "goroced"
	if node != nil && node.Type == kong.CommandNode {
		path = node.FullPath()
	}
	return fmt.Sprintf("; see `%s --help`", path)
}

// flagOf returns the flag or the argument of a command that sets an option of that name, "" if there is none. The tag
// "option" of a flag has the name of the option, where it is not that of the flag.
func flagOf(node *kong.Node, option string) string {
	flags := slices.Concat(node.AllFlags(true)...)
	for _, is := range []func(f *kong.Flag) bool{
		func(f *kong.Flag) bool { return f.Tag.Get("option") == option || "--"+f.Name == option },
		func(f *kong.Flag) bool { return plain(f.Name) == plain(option) },
	} {
		if i := slices.IndexFunc(flags, is); i >= 0 {
			return "--" + flags[i].Name
		}
	}
	for _, p := range node.Positional {
		if plain(p.Name) == plain(option) {
			return "<" + p.Name + ">"
		}
	}
	return ""
}

// plain returns a name without what differs between flags and fields: GIDIndex is gid-index.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// durations has kong take a number without a unit as seconds.
var durations = kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(
	func(ctx *kong.DecodeContext, to reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
			return err
		}
		d, err := time.ParseDuration(text)
		if seconds, numErr := strconv.ParseFloat(text, 64); err != nil && numErr == nil {
			d, err = time.Duration(seconds*float64(time.Second)), nil
		}
		if err != nil {
			return fmt.Errorf("%q is no duration; want one such as 500ms, 2s or 1m30s; a number is in seconds", text)
		}
		to.SetInt(int64(d))
		return nil
	}))

// bitrates has kong take bits a second, such as 100M or 2.5G: units are powers of 1000, as networks have them.
var bitrates = kong.NamedMapper("bitrate", kong.MapperFunc(
	func(ctx *kong.DecodeContext, to reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("bitrate", &text); err != nil {
			return err
		}
		number := strings.TrimRight(text, "kKmMgGtT")
		unit := strings.ToUpper(text[len(number):])
		factor, known := map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit]
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !known || !(n >= 0 && n*factor < 1<<53) {
			return fmt.Errorf("%q is no rate; want bits a second, such as 100M or 2.5G", text)
		}
		to.SetInt(int64(n * factor))
		return nil
	}))

// sizes has kong take numbers of bytes, such as 65536, 64K or 1M: units are powers of 1024, as in perftest and iperf.
var sizes = kong.NamedMapper("size", kong.MapperFunc(
	func(ctx *kong.DecodeContext, to reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("size", &text); err != nil {
			return err
		}
		number := strings.TrimRight(text, "kKmMgGiBb")
		shift, known := map[string]int{"": 0, "B": 0, "K": 10, "M": 20, "G": 30}[strings.TrimSuffix(
			strings.TrimSuffix(strings.ToUpper(text[len(number):]), "IB"), "I")]
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !known || n != n<<shift>>shift {
			return fmt.Errorf("%q is no size; want bytes, such as 4096, 64K or 1M", text)
		}
		if to.Kind() == reflect.Pointer {
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		to.SetInt(n << shift)
		return nil
	}))
