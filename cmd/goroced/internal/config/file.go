package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxFile is the largest size of a file in bytes.
const maxFile = 1 << 20

// deviceKey is the array of tables in which a file lists devices.
const deviceKey = "device"

// file is the contents of a file.
type file struct {
	name    string
	values  map[string]any // by key; those of devices with their index: "device[0].netif"
	keys    []string       // of values, in the order of their lines
	lines   map[string]int // of keys and tables
	bare    map[int]bare   // values that lack their quotes, by line
	devices int
}

// readFile reads a file. The error is an *Error if it is not valid TOML.
func readFile(name string) (*file, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(data) > maxFile {
		return nil, &Error{Source: name, Allowed: fmt.Sprintf("at most %d bytes", maxFile), Err: ErrTooLarge}
	}
	return parse(name, data)
}

func parse(name string, data []byte) (*file, error) {
	tree, data, repaired, err := decode(data)
	if err != nil {
		e := &Error{Source: name, Allowed: "TOML 1.0", Err: fmt.Errorf("%w: %w", ErrSyntax, err)}
		if d := (*toml.DecodeError)(nil); errors.As(err, &d) {
			e.Line, _ = d.Position()
		}
		errs := []error{e}
		for _, line := range slices.Sorted(maps.Keys(repaired)) {
			errs = append(errs, quotesError(name, line, "", repaired[line]))
		}
		return nil, errors.Join(errs...)
	}
	f := &file{name: name, values: map[string]any{}, lines: lines(data), bare: repaired}
	f.flatten("", tree)
	for key := range f.values {
		f.keys = append(f.keys, key)
	}
	slices.SortFunc(f.keys,
		func(a, b string) int { return cmp.Or(cmp.Compare(f.line(a), f.line(b)), cmp.Compare(a, b)) })
	return f, nil
}

// flatten lists the values of a table by their keys. An empty table has none. A value in place of a table, and lists of
// tables other than the devices, are kept as values, which no setting accepts.
func (f *file) flatten(prefix string, table map[string]any) {
	for name, v := range table {
		key := prefix + quote(name)
		if t, ok := v.(map[string]any); ok && (len(t) > 0 || isTable(key)) {
			f.flatten(key+".", t)
			continue
		}
		if list, ok := v.([]any); ok && key == deviceKey && !slices.ContainsFunc(list, notTable) {
			f.devices = len(list)
			for i, t := range list {
				f.flatten(fmt.Sprintf("%s[%d].", key, i), t.(map[string]any))
			}
			continue
		}
		f.values[key] = v
	}
}

// quotes returns an error for each value that lacks its quotes.
func (f *file) quotes() (errs []error) {
	for _, key := range f.keys {
		if v, ok := f.bare[f.line(key)]; ok {
			errs = append(errs, quotesError(f.name, f.line(key), key, v))
		}
	}
	return errs
}

func quotesError(file string, line int, key string, v bare) *Error {
	return &Error{Source: file, Line: line, Key: key, Value: v, Allowed: strconv.Quote(string(v)), Err: ErrQuotes}
}

// quote quotes a part of a dotted key if necessary.
func quote(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isBareKey(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// isBareKey reports whether a key has r without quotes: letters and digits of ASCII, _ and -.
func isBareKey(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// line returns the line of a key; for a list of tables, that of the first one.
func (f *file) line(key string) int {
	if line, ok := f.lines[key]; ok {
		return line
	}
	return f.lines[key+"[0]"]
}

func notTable(v any) bool {
	_, ok := v.(map[string]any)
	return !ok
}

// isTable reports whether the table with this key has settings.
func isTable(key string) bool {
	return slices.ContainsFunc(settings(&Config{}), func(s setting) bool { return strings.HasPrefix(s.key, key+".") })
}

// lines returns the line on which each key and table of a valid document begins.
func lines(data []byte) map[string]int {
	l := liner{at: map[string]int{}}
	l.parser.Reset(data)
	var table string
	elements := map[string]int{}
	for l.parser.NextExpression() {
		switch e := l.parser.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			key, line := l.name("", elements, e.Key())
			if e.Kind == unstable.ArrayTable {
				n := elements[key]
				elements[key]++
				key = fmt.Sprintf("%s[%d]", key, n)
			}
			l.at[key] = line
			table = key + "."
		case unstable.KeyValue:
			l.keyValue(table, e)
		}
	}
	return l.at
}

type liner struct {
	parser unstable.Parser
	at     map[string]int
}

// name appends a dotted key to a prefix; arrays of tables in it stand for their last element. It returns the line of
// the key's last part.
func (l *liner) name(prefix string, elements map[string]int, key unstable.Iterator) (name string, line int) {
	for key.Next() {
		if n, ok := elements[name]; ok {
			name = fmt.Sprintf("%s[%d]", name, n-1)
		}
		if name != "" {
			name += "."
		}
		name += quote(string(key.Node().Data))
		line = l.parser.Shape(key.Node().Raw).Start.Line
	}
	return prefix + name, line
}

func (l *liner) keyValue(prefix string, n *unstable.Node) {
	name, line := l.name(prefix, nil, n.Key())
	l.at[name] = line
	l.inline(name, n.Value())
}

// inline adds the keys of inline tables, and of lists of them.
func (l *liner) inline(name string, v *unstable.Node) {
	children := v.Children()
	switch v.Kind {
	case unstable.InlineTable:
		for children.Next() {
			l.keyValue(name+".", children.Node())
		}
	case unstable.Array:
		for i := 0; children.Next(); i++ {
			l.inline(fmt.Sprintf("%s[%d]", name, i), children.Node())
		}
	}
}
