package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/goroce/tests/require"
)

// offers are what a shell offers at the end of a command line, without help.
var offers = []struct {
	line string
	want string
}{
	{"goroced de", "demo devices devinfo decode"},
	{"goroced doc", "doctor docs"},
	{"goroced compl", "completion"},
	{"goroced completion ", "bash zsh fish"},
	{"goroced doctor --js", "--json"},
	{"goroced pingpong --link ra", "rawsock"},
	{"goroced pingpong -c --link ", "auto udp rawsock afxdp"},
	{"goroced devinfo --device nosuch --link u", "udp"},
	{"goroced devinfo -d decode --li", "--link --list"},
	{"goroced decode x --li", ""},
	{"goroced decode --qp 5 --l", "--ladder"},
	{"goroced stat --wa", "--watch"},
	{"goroced qp --d", "--device"},
	{"goroced demo --daem", "--daemon"},
	{"goroced devinfo --js", "--json"},
	{"goroced fault ", "add list clear"},
	{"goroced fault add d", "drop delay duplicate"},
	{"goroced fault add m", "mark"},
	{"goroced fault add drop --direction ", "in out"},
	{"goroced fault add drop --opcode read", "read read-response"},
	{"goroced config ", "check init show"},
	{"goroced perf -- --li", ""},
	{"goroced nosuch --", "--help --version"},
	{"goroced explain implied", "implied-nak"},
	{"goroced perf wr", "write"},
	{"goroced perf write ", "bw lat"},
	{"goroced pingpong --service u", "uc ud"},
	{"goroced serve --log-level w", "warn"},
	{"goroced serve --netif l", "lo"},
	{"goroced docs da", "daemon"},
	{"goroced top --sort tx", "tx txmsg"},
	{"goroced help compl", "completion"},
	{"goroced help fault ", "add list clear"},
}

// TestComplete: what the scripts ask, and other ways to divide words.
func TestComplete(t *testing.T) {
	list := append(offers[:len(offers):len(offers)],
		struct{ line, want string }{"goroced pingpong --link=ra", "--link=rawsock"}, // zsh, fish
		struct{ line, want string }{"goroced pingpong --link =", "auto udp rawsock afxdp"},
		struct{ line, want string }{"goroced pingpong --link = ra", "rawsock"}) // bash
	for _, o := range list {
		words := strings.Split(o.line, " ")[1:]
		var got []string
		for line := range strings.Lines(success(t, append([]string{"complete", "--"}, words...)...)) {
			word, help, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if help == "" {
				t.Errorf("%q: %s has no help", o.line, word)
			}
			got = append(got, word)
		}
		// Flags of a group come in the order of their fields.
		if diff := cmp.Diff(sortedFields(o.want), sortedFields(strings.Join(got, " "))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", o.line, diff)
		}
	}
	if out := success(t, "--help"); strings.Contains(out, "Answer the script") {
		t.Error("the command for scripts shows in the help")
	}
	if p, code := goroced(t, "completion", "tcsh"); code != exitUsage || !strings.Contains(p.err.String(), "zsh") {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitUsage, "zsh", p.err.String())
	}
}

// shellScripts ask a shell what it offers at the end of each of the lines $2 and so on, with the program's script in
// the file $1. == ends what it offers for a line.
var shellScripts = map[string]string{
	"bash": `source "$1"; shift
function_of=$(complete -p goroced | sed 's/.*-F \([^ ]*\) .*/\1/')
for line; do
	COMP_LINE=$line COMP_POINT=${#line} COMPREPLY=()
	read -ra COMP_WORDS <<<"$line"
	[[ $line != *" " ]] || COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	"$function_of" goroced "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
	printf '%s\n' "${COMPREPLY[@]}" ==
done`,
	"fish": `source $argv[1]
for line in $argv[2..]
	complete -C $line | cut -f 1
	echo ==
end`,
	// zsh offers only at a terminal. What it would show is caught.
	"zsh": `compdef() { : }
source "$1"; shift
_describe() { print -l -- "${found[@]%%:*}" }
_files() { : }
for line; do
	words=("${(@s: :)line}") CURRENT=${#words}
	_goroced
	print '=='
done`,
}

// TestShells: each shell takes its script without complaint, and offers the words.
func TestShells(t *testing.T) {
	t.Parallel()
	for shell, script := range shellScripts {
		t.Run(shell, func(t *testing.T) {
			path := require.Command(t, shell)
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(success(t, "completion", shell)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%s -n: %v, want nothing\n%s", shell, err, out)
			}
			args := []string{"-c", script, shell, file}
			if shell == "fish" {
				args = []string{"-N", "-c", script, file}
			}
			for _, o := range offers {
				args = append(args, o.line)
			}
			cmd := exec.Command(path, args...)
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			got := strings.Split(string(out), "==\n")
			if err != nil || len(got) != len(offers)+1 {
				t.Fatalf("%d answers, want one to each of %d lines, %v:\n%s", len(got)-1, len(offers), err, out)
			}
			for i, o := range offers {
				if o.want == "" {
					continue // file names then
				}
				if diff := cmp.Diff(sortedFields(o.want), sortedFields(got[i])); diff != "" {
					t.Errorf("%q (-want +got):\n%s", o.line, diff)
				}
			}
		})
	}
}

func sortedFields(s string) []string {
	f := strings.Fields(s)
	slices.Sort(f)
	return f
}
