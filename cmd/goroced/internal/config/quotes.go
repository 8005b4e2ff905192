package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"github.com/pelletier/go-toml/v2"
)

// bare is a value without the quotes that it needs.
type bare string

// unquoted is a line with a value that looks right to people and is no TOML: permissions, or a time, without quotes.
var unquoted = regexp.MustCompile(`^(\s*[^=#]+=\s*)(0[0-7]+|[0-9][0-9.]*[a-zµ][0-9a-zµ.]*)(\s*(?:#.*)?)$`)

// decode decodes a document. A value that only lacks its quotes gets them, so that it does not hide what else is wrong;
// repaired has it by its line, from 1.
func decode(data []byte) (tree map[string]any, fixed []byte, repaired map[int]bare, err error) {
	repaired = map[int]bare{}
	for {
		tree = nil
		err = toml.Unmarshal(data, &tree)
		var d *toml.DecodeError
		if !errors.As(err, &d) {
			return tree, data, repaired, err
		}
		at, _ := d.Position()
		lines := bytes.Split(data, []byte("\n"))
		if at < 1 || at > len(lines) || repaired[at] != "" {
			return nil, data, repaired, err
		}
		m := unquoted.FindSubmatch(bytes.TrimSuffix(lines[at-1], []byte("\r")))
		if m == nil {
			return nil, data, repaired, err
		}
		repaired[at] = bare(m[2])
		lines[at-1] = fmt.Appendf(nil, "%s%q%s", m[1], m[2], m[3])
		data = bytes.Join(lines, []byte("\n"))
	}
}
