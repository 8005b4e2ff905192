package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is the value of a setting, bound to the field that stores it. All values are parsed from text, as in variables
// and flags; literal says which TOML values have such a text.
type value struct {
	allowed string // for people
	literal func(v any) (text string, ok bool)
	text    func(text string) error // parses and stores it; the error is ErrValue
	get     func() any              // the stored value as a file has it
}

// set stores a value of a file. The error is ErrType or ErrValue; then nothing is stored.
func (v value) set(from any) error {
	text, ok := v.literal(from)
	if !ok {
		return ErrType
	}
	return v.text(text)
}

// stored returns a value of type T.
func stored[T any](to *T, allowed string, literal func(any) (string, bool), parse func(string) (T, bool),
	get func(T) any) value {
	return value{allowed, literal, func(text string) error {
		v, ok := parse(text)
		if !ok {
			return ErrValue
		}
		*to = v
		return nil
	}, func() any { return get(*to) }}
}

// Which TOML values a setting accepts, and their text.

func isString(v any) (string, bool) {
	s, ok := v.(string)
	return s, ok
}

func isInteger(v any) (string, bool) {
	n, ok := v.(int64)
	return strconv.FormatInt(n, 10), ok
}

func isSize(v any) (string, bool) {
	if s, ok := v.(string); ok {
		return s, true
	}
	return isInteger(v)
}

func isBoolean(v any) (string, bool) {
	b, ok := v.(bool)
	return strconv.FormatBool(b), ok
}

// isStrings accepts a list of strings, which a text separates by commas.
func isStrings(v any) (string, bool) {
	list, ok := v.([]any)
	parts := make([]string, len(list))
	for i := range list {
		s, text := list[i].(string)
		ok = ok && text && s != "" && !strings.Contains(s, ",")
		parts[i] = s
	}
	return strings.Join(parts, ","), ok
}

// number is a number between 0 and most.
func number(to *int, most int) value {
	return count(to, fmt.Sprintf("a number, 0 to %d", most), func(n int) bool { return n >= 0 && n <= most })
}

// count is a number that ok accepts.
func count(to *int, allowed string, ok func(int) bool) value {
	return stored(to, allowed, isInteger, func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && ok(n)
	}, func(n int) any { return int64(n) })
}

var units = []struct {
	name  string
	shift uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}}

// bytesize is a number of bytes; a text may have a unit.
func bytesize(to *int64) value {
	return stored(to, "bytes, 0 or more, or a text with a unit: KiB, MiB, GiB, TiB", isSize, parseSize,
		func(n int64) any {
			for _, u := range units {
				if u.shift > 0 && n>>u.shift != 0 && n>>u.shift<<u.shift == n {
					return fmt.Sprintf("%d%s", n>>u.shift, u.name)
				}
			}
			return n
		})
}

func parseSize(s string) (int64, bool) {
	for _, u := range units {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
			return n << u.shift, err == nil && n >= 0 && n <= math.MaxInt64>>u.shift
		}
	}
	return 0, false
}

func boolean(to *bool) value {
	return stored(to, "true, false", isBoolean, func(s string) (bool, bool) {
		return s == "true", s == "true" || s == "false"
	}, func(b bool) any { return b })
}

// parsed is a value that a file writes as a string.
func parsed[T any](to *T, allowed string, parse func(string) (T, bool), show func(T) string) value {
	return stored(to, allowed, isString, parse, func(v T) any { return show(v) })
}

// text is a string that ok accepts.
func text(to *string, allowed string, ok func(string) bool) value {
	return parsed(to, allowed, func(s string) (string, bool) { return s, ok(s) }, func(s string) string { return s })
}

// choice is one of the given texts.
func choice(to *string, of ...string) value {
	return text(to, strings.Join(of, ", "), func(s string) bool { return slices.Contains(of, s) })
}

func duration(to *time.Duration, most time.Duration) value {
	return parsed(to, fmt.Sprintf("a duration like \"10s\", up to %v", most), func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= 0 && d <= most
	}, time.Duration.String)
}

func permissions(to *fs.FileMode) value {
	const allowed = `octal permissions in quotes, with those of the owner: "0600" to "0777"`
	return parsed(to, allowed, func(s string) (fs.FileMode, bool) {
		n, err := strconv.ParseUint(s, 8, 32)
		return fs.FileMode(n), err == nil && n <= 0o777 && n&0o600 == 0o600
	}, func(m fs.FileMode) string { return fmt.Sprintf("0%o", m) })
}

func level(to *slog.Level) value {
	levels := []string{"debug", "info", "warn", "error"}
	return parsed(to, strings.Join(levels, ", "), func(s string) (l slog.Level, ok bool) {
		ok = slices.Contains(levels, s) && l.UnmarshalText([]byte(s)) == nil
		return l, ok
	}, func(l slog.Level) string { return strings.ToLower(l.String()) })
}

func listen(to *netip.AddrPort) value {
	const allowed = `an IP address and port like "127.0.0.1:9471", or "" for nowhere`
	return parsed(to, allowed, func(s string) (a netip.AddrPort, ok bool) {
		ok = a.UnmarshalText([]byte(s)) == nil // accepts "", too
		return a, ok
	}, func(a netip.AddrPort) string {
		text, _ := a.MarshalText() // cannot fail
		return string(text)
	})
}

// addresses is a list of IP addresses without duplicates.
func addresses(to *[]netip.Addr) value {
	const allowed = "a list of IP addresses, link-local ones with their zone"
	return stored(to, allowed, isStrings, func(s string) (addrs []netip.Addr, ok bool) {
		if s == "" {
			return nil, true
		}
		for part := range strings.SplitSeq(s, ",") {
			a, err := netip.ParseAddr(strings.TrimSpace(part))
			if err != nil || slices.Contains(addrs, a) {
				return nil, false
			}
			addrs = append(addrs, a)
		}
		return addrs, true
	}, func(addrs []netip.Addr) any {
		list := make([]any, len(addrs))
		for i, a := range addrs {
			list[i] = a.String()
		}
		return list
	})
}
