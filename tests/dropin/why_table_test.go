package dropin

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/gobuild"
	"github.com/goroce/goroce/tests/require"
)

var updateWhy = flag.Bool("why.update", false, "write the table of docs/failures.md from what `goroced why` says")

// ways are the failures of the table in docs/failures.md: cases of verbs_why.c and of whygo.
var ways = []struct{ name, what string }{
	{"wrong_key", "WRITE with a key that nobody has"},
	{"deregistered", "WRITE to memory that was deregistered"},
	{"no_right", "WRITE to memory that was registered for reading"},
	{"too_far", "WRITE of 64 bytes of which 58 are beyond the end"},
	{"other_pd", "WRITE to memory of another protection domain"},
	{"misaligned", "atomic at an address that is no multiple of 8"},
	{"not_ready", "SEND, and no receive is posted; `rnr_retry` is 1"},
	{"too_long", "SEND of 100 bytes into a receive of 10"},
	{"own_key", "WRITE from memory with an lkey that nobody has"},
	{"cq_full", "more completions than the CQ has room for"},
	{"port_closed", "WRITE to an address where nobody has UDP port 4791"},
	{"silence", "WRITE to a queue pair that is gone"},
}

// variable are the parts of sentences that differ from run to run, and what the table has instead.
var variable = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`(key|region) 0x[0-9a-f]{1,8}\b`), "$1 0x5a5869d9"},
	{regexp.MustCompile(`0x[0-9a-f]{6,13}([0-9a-f]{3})\b`), "0x7f3a5c2b0$1"}, // an address: its place in a page stays
	{regexp.MustCompile(`\d+(\.\d+)?(ns|µs|ms|s) before`), "12ms before"},
	{regexp.MustCompile(`posted for \d[\w.µ]*;`), "posted for 12ms;"},
}

// TestWhyTable: of twelve failures `goroced why` says the cause at both ends, in one sentence each, the same for a
// program in C and for one in Go. docs/failures.md has the sentences.
func TestWhyTable(t *testing.T) {
	h := newHost(t, nil)
	inGo := filepath.Join(userDir(t), "whygo")
	if err := gobuild.Program(inGo, "./whygo"); err != nil {
		t.Fatal(err)
	}
	programs := []struct {
		language string
		command  []string
	}{
		{"C", []string{goroced, "run", "--socket", h.socket, "--", compileVerbs(t, "testdata/verbs_why.c")}},
		{"Go", []string{"env", "GOROCED_SOCKET=" + h.socket, inGo}},
	}
	table := "| What is done | The end that asks says | The other end says |\n| --- | --- | --- |\n"
	for _, way := range ways {
		var said [2][2]string
		for i, p := range programs {
			said[i] = h.whyOf(t, append(p.command, way.name, ownAddr(t))...)
			t.Logf("%s in %s:\n%s\n%s", way.name, p.language, said[i][0], said[i][1])
		}
		asks := said[0][0]
		if _, refused, ok := strings.Cut(said[1][0], "refused: "); ok && refused != "<nil>" {
			asks += ". In Go `PostSend` refuses it: " + refused
		} else if said[0] != said[1] {
			t.Errorf("%s: got of a program in C\n%q\nwant as of one in Go\n%q", way.name, said[0], said[1])
		}
		if said[0][0] == "" {
			t.Errorf("%s: nothing says why it has failed", way.name)
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", way.what, asks, said[0][1])
	}
	const file = "../../docs/failures.md"
	const begin, end = "<!-- why: go test ./tests/dropin -run TestWhyTable -why.update -->\n", "<!-- end of why -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s lacks the marks of the table", file)
	}
	want := "\n" + table + "\n"
	if *updateWhy {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("%s has\n%s\nwant\n%s", file, got, want)
	}
}

// whyOf runs a program that lets a request fail, and returns what `goroced why` says of its two queue pairs, without
// what differs from run to run.
func (h *host) whyOf(t *testing.T, command ...string) (said [2]string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := h.launch(t, cmd)
	numbers := regexp.MustCompile(`(?m)^qp (\d+) (\d+)$`)
	require.Until(t, "the request has failed", func() bool {
		select {
		case <-p.done:
			t.Fatalf("%v ended: %v\n%s", command, p.err, p.out.String())
		default:
		}
		return numbers.MatchString(p.out.String())
	})
	for i, qpn := range numbers.FindStringSubmatch(p.out.String())[1:] {
		said[i] = "nothing: there is none"
		if qpn != "0" {
			said[i] = h.why(t, qpn)
		}
	}
	if refused := regexp.MustCompile(`(?m)^refused: .*`).FindString(p.out.String()); refused != "" {
		said = [2]string{steady(refused)}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if out, err := p.wait(t); err != nil {
		t.Errorf("%v: %v\n%s", command, err, out)
	}
	return said
}

// why returns why a queue pair has failed, or what it has refused.
func (h *host) why(t *testing.T, qpn string) string {
	t.Helper()
	var list []struct{ Failed, Refused string }
	out := h.start(t, goroced, "why", "--json", "--admin", h.dir+"/a", qpn).ok(t)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("QP %s: %v, want one story: %s", qpn, err, out)
	}
	text := list[0].Failed
	if text == "" {
		text = list[0].Refused
	}
	if text == "" {
		return "nothing: it has not heard of it"
	}
	return steady(text)
}

// steady replaces what differs from run to run.
func steady(text string) string {
	for _, v := range variable {
		text = v.re.ReplaceAllString(text, v.by)
	}
	return text
}
