// Package completion lets shells complete command lines of a program that uses kong. The shell loads [Script], which
// runs the program, which answers with [Candidates]; so completions always fit the installed program.
package completion

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/ib/driver"
)

// Shells are the shells that Script supports.
var Shells = []string{"bash", "zsh", "fish"}

// The scripts run `PROGRAM complete -- WORD...` with the words after the program up to the cursor. The last word, which
// may be empty, is to be completed. Each line of the answer is a whole word, a tab, and help. If the answer is empty,
// the shell completes file names.
var scripts = map[string]string{
	"bash": `# bash completion of NAME: source <(NAME completion bash)
_NAME() {
	local IFS=$'\n'
	COMPREPLY=($("$1" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _NAME NAME
`,
	"zsh": `#compdef NAME
# zsh completion of NAME: source <(NAME completion zsh), or a file _NAME in $fpath
_NAME() {
	local -a found
	local word help
	while IFS=$'\t' read -r word help; do
		found+=("${word//:/\\:}:$help")
	done < <("$words[1]" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( $#found )); then _describe NAME found; else _files; fi
}
if [[ $funcstack[1] == _NAME ]]; then _NAME "$@"; else compdef _NAME NAME; fi
`,
	"fish": `# fish completion of NAME: NAME completion fish | source
function __NAME_complete
	set -l words (commandline -opc) (commandline -ct)
	set -l found ($words[1] complete -- $words[2..-1] 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c NAME -f -a '(__NAME_complete)'
`,
}

// Script returns the script for one of Shells. The name of the program must consist of letters.
func Script(shell, program string) (string, error) {
	s, ok := scripts[shell]
	if !ok {
		return "", driver.Refuse("completion", "shell", shell, strings.Join(Shells, ", "), ib.ErrInvalid)
	}
	return strings.ReplaceAll(s, "NAME", program), nil
}

// Candidate is a completion of a word.
type Candidate struct{ Word, Help string }

func (c Candidate) String() string { return c.Word + "\t" + c.Help }

// Values are sources of values that flags and arguments may have, by name.
type Values map[string]func() []Candidate

// Candidates returns the completions of the last word, none if words is empty. A flag or an argument with the tag
// `complete:"NAME"` has the values of that name, one with `complete:"a,b"` those in the list.
func Candidates(root *kong.Node, words []string, from Values) []Candidate {
	if len(words) == 0 {
		return nil
	}
	at := place{node: root, from: from}
	for _, w := range words[:len(words)-1] {
		at.pass(w)
	}
	return at.fitting(words[len(words)-1])
}

// place is the state of parsing a command line.
type place struct {
	node   *kong.Node
	flag   *kong.Flag // whose value is the next word; nil if none
	args   int        // number of positional arguments so far
	noFlag bool       // "--" has been seen
	from   Values
}

// pass parses one word.
func (p *place) pass(word string) {
	switch {
	case p.flag != nil:
		if word != "=" { // bash splits --flag=value into three words
			p.flag = nil
		}
	case p.isFlag(word):
		name, _, hasValue := strings.Cut(word, "=")
		if f := p.find(name); f != nil && !hasValue && !f.IsBool() && !f.IsCounter() {
			p.flag = f
		}
		p.noFlag = word == "--"
	default:
		i := slices.IndexFunc(p.node.Children, func(n *kong.Node) bool {
			return n.Name == word || slices.Contains(n.Aliases, word)
		})
		if i < 0 {
			p.args++
			return
		}
		if p.node.Parent == nil && word == "help" {
			return // the name of a command follows
		}
		p.node, p.args = p.node.Children[i], 0
	}
}

func (p *place) isFlag(word string) bool { return !p.noFlag && len(word) > 1 && word[0] == '-' }

// flags returns the flags that are possible here.
func (p *place) flags() []*kong.Flag { return slices.Concat(p.node.AllFlags(true)...) }

// find returns the flag named --name or -n; nil if there is none.
func (p *place) find(word string) *kong.Flag {
	for _, f := range p.flags() {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) ||
			slices.Contains(f.Aliases, strings.TrimPrefix(word, "--")) {
			return f
		}
	}
	return nil
}

// fitting returns the completions of a word.
func (p *place) fitting(word string) []Candidate {
	var all []Candidate
	name, _, hasValue := strings.Cut(word, "=")
	switch {
	case p.flag != nil:
		if word == "=" {
			word = ""
		}
		all = p.values(p.flag.Value, "")
	case p.isFlag(word) && hasValue:
		if f := p.find(name); f != nil {
			all = p.values(f.Value, name+"=")
		}
	case !p.noFlag && strings.HasPrefix(word, "-"):
		for _, f := range p.flags() {
			all = append(all, Candidate{"--" + f.Name, f.Help})
		}
	default:
		for _, n := range p.node.Children {
			if !n.Hidden {
				all = append(all, Candidate{n.Name, n.Help})
			}
		}
		if p.args < len(p.node.Positional) {
			all = append(all, p.values(p.node.Positional[p.args], "")...)
		}
	}
	return slices.DeleteFunc(all, func(c Candidate) bool { return !strings.HasPrefix(c.Word, word) })
}

// values returns the possible values of a flag or an argument, if they are known.
func (p *place) values(v *kong.Value, prefix string) (all []Candidate) {
	tag := v.Tag.Get("complete")
	if get := p.from[tag]; get != nil {
		for _, c := range get() {
			all = append(all, Candidate{prefix + c.Word, c.Help})
		}
		return all
	}
	list := strings.Split(tag, ",")
	if v.Enum != "" {
		list = v.EnumSlice()
	}
	for _, s := range list {
		if s != "" { // an empty string stands for no value
			all = append(all, Candidate{prefix + s, fmt.Sprintf("%s %s", v.Name, s)})
		}
	}
	return all
}
