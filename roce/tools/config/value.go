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

// value is a kind of setting, bound to where it is stored.
type value interface {
	// set stores what a file says: a string, an int64, a bool, or a []any of them.
	// It fails with ErrType or ErrValue and then stores nothing.
	set(v any) error
	// text stores what an environment variable or a flag says.
	text(s string) error
	// get returns what is stored, as set takes it.
	get() any
	allowed() string
}

// integer lies between 0 and max.
type integer struct {
	to  *int
	max int
}

func (i integer) allowed() string { return fmt.Sprintf("a number, 0 to %d", i.max) }
func (i integer) get() any        { return int64(*i.to) }
func (i integer) text(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return ErrType
	}
	return i.set(n)
}

func (i integer) set(v any) error {
	n, ok := v.(int64)
	if !ok {
		return ErrType
	}
	if n < 0 || n > int64(i.max) {
		return ErrValue
	}
	*i.to = int(n)
	return nil
}

// bytesize is a number of bytes; texts may have a unit.
type bytesize struct{ to *int64 }

var units = []struct {
	name  string
	shift uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}}

func (bytesize) allowed() string {
	return "bytes, 0 or more, or a text with a unit: KiB, MiB, GiB, TiB"
}

func (b bytesize) get() any {
	for _, u := range units {
		if *b.to>>u.shift<<u.shift == *b.to && *b.to>>u.shift != 0 && u.shift > 0 {
			return fmt.Sprintf("%d%s", *b.to>>u.shift, u.name)
		}
	}
	return *b.to
}

func (b bytesize) set(v any) error {
	switch v := v.(type) {
	case string:
		return b.text(v)
	case int64:
		if v < 0 {
			return ErrValue
		}
		*b.to = v
		return nil
	}
	return ErrType
}

func (b bytesize) text(s string) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64>>u.shift {
			return ErrValue
		}
		*b.to = n << u.shift
		return nil
	}
	return ErrValue
}

// boolean is true or false.
type boolean struct{ to *bool }

func (boolean) allowed() string { return "true, false" }
func (b boolean) get() any      { return *b.to }
func (b boolean) set(v any) error {
	on, ok := v.(bool)
	if !ok {
		return ErrType
	}
	*b.to = on
	return nil
}

func (b boolean) text(s string) error {
	if s != "true" && s != "false" {
		return ErrValue
	}
	*b.to = s == "true"
	return nil
}

// parsed is what a file writes as a string.
type parsed[T any] struct {
	to    *T
	parse func(string) (T, bool)
	show  func(T) string
	want  string
}

func (p parsed[T]) allowed() string { return p.want }
func (p parsed[T]) get() any        { return p.show(*p.to) }
func (p parsed[T]) set(v any) error {
	s, ok := v.(string)
	if !ok {
		return ErrType
	}
	return p.text(s)
}

func (p parsed[T]) text(s string) error {
	v, ok := p.parse(s)
	if !ok {
		return ErrValue
	}
	*p.to = v
	return nil
}

// text takes every string that ok does.
func text(to *string, want string, ok func(string) bool) value {
	return parsed[string]{to, func(s string) (string, bool) { return s, ok(s) }, func(s string) string { return s }, want}
}

// choice is one of these texts.
func choice(to *string, of ...string) value {
	return text(to, strings.Join(of, ", "), func(s string) bool { return slices.Contains(of, s) })
}

func duration(to *time.Duration, most time.Duration) value {
	return parsed[time.Duration]{to, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= 0 && d <= most
	}, time.Duration.String, fmt.Sprintf("a duration like \"10s\", up to %v", most)}
}

func permissions(to *fs.FileMode) value {
	return parsed[fs.FileMode]{to, func(s string) (fs.FileMode, bool) {
		n, err := strconv.ParseUint(s, 8, 32)
		return fs.FileMode(n), err == nil && n <= 0o777 && n&0o600 == 0o600
	}, func(m fs.FileMode) string { return fmt.Sprintf("0%o", m) }, `octal permissions in quotes, with those of the owner: "0600" to "0777"`}
}

func level(to *slog.Level) value {
	return parsed[slog.Level]{to, func(s string) (l slog.Level, ok bool) {
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, s) {
			return l, false
		}
		return l, l.UnmarshalText([]byte(s)) == nil
	}, func(l slog.Level) string { return strings.ToLower(l.String()) }, "debug, info, warn, error"}
}

func listen(to *netip.AddrPort) value {
	return parsed[netip.AddrPort]{to, func(s string) (netip.AddrPort, bool) {
		if s == "" {
			return netip.AddrPort{}, true
		}
		a, err := netip.ParseAddrPort(s)
		return a, err == nil
	}, func(a netip.AddrPort) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}, `an IP address and port like "127.0.0.1:9471", or "" for nowhere`}
}

// addresses is a list of IP addresses; a text separates them by commas.
type addresses struct{ to *[]netip.Addr }

func (addresses) allowed() string { return "a list of IP addresses, link-local ones with their zone" }

func (a addresses) get() any {
	list := make([]any, len(*a.to))
	for i, addr := range *a.to {
		list[i] = addr.String()
	}
	return list
}

func (a addresses) set(v any) error {
	list, ok := v.([]any)
	if !ok {
		return ErrType
	}
	addrs := make([]netip.Addr, len(list))
	for i := range list {
		s, ok := list[i].(string)
		if !ok {
			return ErrType
		}
		var err error
		if addrs[i], err = netip.ParseAddr(s); err != nil || slices.Contains(addrs[:i], addrs[i]) {
			return ErrValue
		}
	}
	*a.to = addrs
	return nil
}

func (a addresses) text(s string) error {
	var list []any
	for part := range strings.SplitSeq(s, ",") {
		list = append(list, strings.TrimSpace(part))
	}
	return a.set(list)
}
