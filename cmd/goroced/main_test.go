package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/goroce/goroce/tests/gobuild"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// program is the built goroced.
var program string

// copyProgram copies the program by a process of its own: what this process writes cannot be run (ETXTBSY) while a
// child that another test has just forked still has it open.
func copyProgram(t testing.TB, path string) {
	t.Helper()
	if out, err := exec.Command("cp", program, path).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "goroced")
	if err == nil {
		program = filepath.Join(dir, "goroced")
		err = gobuild.Program(program, ".")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	require.Parallel(4) // children, many of which wait for a time limit
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// process is a child that runs or ran.
type process struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer  // to be read after wait
	ended    chan struct{} // closed when the process has ended
	failed   error         // of cmd.Wait, from then on
}

// begin starts the process.
func (p *process) begin() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.ended = make(chan struct{})
	go func() {
		p.failed = p.cmd.Wait()
		close(p.ended)
	}()
	return nil
}

// start runs goroced with a time limit.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	// Not t.Context(), which ends before the cleanups that stop daemons.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	p := &process{cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	return p
}

// wait returns the exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	<-p.ended
	var exit *exec.ExitError
	if p.failed != nil && !errors.As(p.failed, &exit) {
		t.Fatal(p.failed)
	}
	return p.cmd.ProcessState.ExitCode()
}

// remark is a line that says what goroced waits for, which comes only if the wait is long, as on a busy machine; or the
// end of a queue pair's story, or where it is.
var remark = regexp.MustCompile(`(?m)^waiting for .*\n|^` + "`" + `goroced why .*\n|^the last that QP .*\n\n(?:.+\n)+\n`)

// complaint returns what the process printed on standard error, without remarks.
func (p *process) complaint() string { return remark.ReplaceAllString(p.err.String(), "") }

// run runs goroced to its end.
func goroced(t *testing.T, args ...string) (p *process, code int) {
	t.Helper()
	p = start(t, args...)
	return p, p.wait(t)
}

// success runs goroced, which must succeed, and returns what it printed.
func success(t *testing.T, args ...string) string {
	t.Helper()
	p, code := goroced(t, args...)
	if code != 0 {
		t.Fatalf("goroced %v: exit code %d, want 0: %s", args, code, p.err.String())
	}
	return p.out.String()
}

func TestVersion(t *testing.T) {
	if out := success(t, "version"); !strings.HasPrefix(out, "goroced ") || strings.Count(out, "\n") != 1 {
		t.Errorf("version: %q, want one line that begins with goroced", out)
	}
	if out := success(t, "--version"); out != success(t, "version") {
		t.Errorf("--version: %q, want %q", out, success(t, "version"))
	}
	var v version
	if err := json.Unmarshal([]byte(success(t, "version", "--json")), &v); err != nil || v.Version == "" || v.Go == "" {
		t.Errorf("version --json: %+v, %v; want the versions of goroced and Go", v, err)
	}
}

// TestHelpCommand: what help NAME and NAME --help print is the same.
func TestHelpCommand(t *testing.T) {
	for _, c := range []struct{ help, flag string }{
		{"help", "--help"}, {"help decode", "decode --help"}, {"help fault add", "fault add --help"},
	} {
		if out := success(t, strings.Fields(c.help)...); !strings.HasPrefix(out, "Usage: goroced") ||
			out != success(t, strings.Fields(c.flag)...) {
			t.Errorf("%s, want the usage, as by %s:\n%s", c.help, c.flag, out)
		}
	}
}

// TestErrors: one line on standard error, the right exit code, and in the line
// what was wrong and what to do.
func TestErrors(t *testing.T) {
	t.Parallel()
	taken := linktest.Loopback()
	hold, err := net.ListenPacket("udp", net.JoinHostPort(taken.String(), "4791"))
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	own := linktest.Loopback().String()
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("this is no capture file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"nosuch", exitUsage, "--help"},
		{"demo --nosuch", exitUsage, "--nosuch"},
		{"pingpong a b", exitUsage, "b"},
		{"pingpong --link carrier-pigeon", exitUsage, "rawsock"},
		{"pingpong serve -s 64K", exitUsage, "-s is for the clients"},
		{"pingpong serve --service ud", exitUsage, "--service is for the clients"},
		{"pingpong serve --max-time 0s", exitUsage, "more than 0"},
		{"pingpong -o", exitUsage, "not supported"}, {"pingpong -O", exitUsage, "not supported"},
		{"pingpong -P", exitUsage, "not supported"},
		{"pingpong -t", exitUsage, "not supported"}, {"pingpong -j", exitUsage, "not supported"},
		{"pingpong -N", exitUsage, "not supported"},
		{"pingpong -U", exitUsage, "not supported"},
		{"pingpong --addr eth0", exitUsage, `"eth0" is no IP address; want one such as 192.0.2.1`},
		{"rping -c -a 127.0.0.1 -I 127.0.0", exitUsage, `"127.0.0" is no IP address`},
		{"pingpong --drop 1 --addr " + own, exitUsage, "--drop is 1"},
		{"pingpong --addr " + own + " no-such-host..invalid", exitFailure, "no-such-host..invalid"},
		{"pingpong --addr " + own + " -p 1 127.0.0.1", exitFailure, "start it there first"},
		{"pingpong --addr " + own + " -m 1500", exitUsage, "--mtu is 1500; allowed: 256, "},
		{"perf write bw --addr " + own + " -m 1500", exitUsage, "--mtu is 1500; allowed: 256, "},
		{"rping -c -a 127.0.0.1 --addr " + own + " --mtu 1500", exitUsage, "--mtu is 1500; allowed: "},
		{"rstream -s 127.0.0.1 --addr " + own + " --mtu 1500", exitUsage, "--mtu is 1500; allowed: "},
		{"pingpong --addr " + taken.String(), exitFailure, fmt.Sprintf("process %d", os.Getpid())},
		{"pingpong --addr " + own + " --netif lo", exitFailure, "one of them"},
		{"pingpong --addr " + own + " -d goroce_lo", exitFailure, "exclude"},
		{"pingpong --addr " + own + " -m 1024 --service ud", exitUsage, "none with service ud"},
		{"pingpong --addr " + own + " -q 2", exitUsage, "except with service srq"},
		{"pingpong --addr " + own + " --service rd", exitUsage, "rc, uc, ud, srq"},
		{"devinfo -d nosuch0", exitFailure, "nosuch0"},
		{"devinfo --device nosuch0", exitFailure, "soft, goroce_IF"},
		{"devinfo --ib-dev goroce_nosuch0", exitFailure, "nosuch0 has no address"},
		{"devinfo --device rnic:nosuch0", exitFailure, "nosuch0"},
		{"pingpong --device rnic:nosuch0 --link udp", exitFailure, "--link is for the software device"},
		{"pingpong --device rnic:nosuch0 --drop 0.1", exitFailure, "--drop is for the software device"},
		{"pingpong --device rnic:nosuch0 --shards 2", exitFailure, "--shards is for the software device"},
		{"devinfo --addr " + own + " --shards 3", exitFailure, "power of two"},
		{"devinfo --addr 192.0.2.77", exitFailure, "192.0.2.77"},
		{"devinfo --link afxdp --addr " + own, exitFailure, "use link udp"},
		{"demo --mtu 1000 --client " + own, exitUsage, "--mtu is 1000; allowed: 256, 512, "},
		{"demo --drop 0.9", exitUsage, "0 to 0.25"},
		{"demo --client " + own + " --server " + own, exitFailure, "4791"},
		{"demo --pcap /nosuch/file", exitFailure, "/nosuch/file"},
		{"decode /nosuch/file", exitFailure, "/nosuch/file"},
		{"decode " + junk, exitFailure, "junk"},
		{"explain nosuch", exitFailure, "nosuch"},
	} {
		complains(t, c.args, c.code, c.want)
	}
}

// complains runs a command line that fails, and checks the exit code and the only line on standard error.
func complains(t *testing.T, args string, code int, want string) {
	t.Helper()
	p, got := goroced(t, strings.Fields(args)...)
	said := p.complaint()
	if got != code || !strings.HasPrefix(said, "goroced: ") || strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, want) {
		t.Errorf("goroced %s: exit code %d, want %d, and one line that says %q:\n%s", args, got, code, want, said)
	}
}

// TestUsage: a mistake on the command line is told by the name of the flag, with the help of its command.
func TestUsage(t *testing.T) {
	t.Parallel()
	own := linktest.Loopback().String()
	for _, c := range []struct{ args, want string }{
		{"pingpong -s many", `"many" is no size; want bytes, such as 4096, 64K or 1M; see ` +
			"`goroced pingpong --help`"},
		{"pingpong -s 64X", `"64X" is no size`},
		{"pingpong -s 9000000G --addr " + own, "1 to "},
		{"stat -i x", `"x" is no duration; want one such as 500ms`},
		{"rping -c -a", "--address wants a value; see `goroced rping --help`"},
		{"perf write", "see `goroced perf --help`"},
		{"perf read bw -c UC --addr " + own, "--connection is UC; allowed: [RC] for read bw"},
		{"perf write bw -l 9999 --addr " + own, "--post_list is 9999; allowed: 0 to "},
		{"decode --packets 5-2 x", "--packets is 5-2; allowed: a number from 1 on"},
	} {
		complains(t, c.args, exitUsage, c.want)
	}
}

// TestDidYouMean: misspelt names of commands, flags, values and lessons.
func TestDidYouMean(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"demmo", exitUsage, `did you mean "demo"?`},
		{"help explane", exitUsage, `did you mean "explain"?`},
		{"demo --dorp 0.1", exitUsage, `did you mean "--drop"?`},
		{"fault add drpo", exitUsage, `did you mean "drop"?`},
		{"fault add drop --opcode sned", exitUsage, `did you mean "send"?`},
		{"perf wirte bw", exitUsage, `did you mean "write"?`},
		{"pingpong --link pud", exitUsage, `did you mean "udp"?`},
		{"explain lost-akc", exitFailure, `did you mean "lost-ack"?`},
	} {
		p, code := goroced(t, strings.Fields(c.args)...)
		if said := p.err.String(); code != c.code || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("goroced %s: exit code %d, want %d, and one line that says %q:\n%s", c.args, code, c.code, c.want,
				said)
		}
	}
}

// TestHelp: nothing to do is no error.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"demo", "--help"}, {"pingpong", "-h"}} {
		if out := success(t, args...); !strings.Contains(out, "Usage: goroced") {
			t.Errorf("goroced %v printed %q", args, out)
		}
	}
}

// TestHelpQuotes: no help has two quotes in a row, which the parser's formatter takes for a typographic one.
func TestHelpQuotes(t *testing.T) {
	parser := kong.Must(&commandLine{}, kong.Vars{"version": ""})
	nodes := parser.Model.Leaves(false)
	if len(nodes) < 30 {
		t.Fatalf("only %d commands, want at least 30", len(nodes))
	}
	for _, node := range nodes {
		var help strings.Builder
		fmt.Fprintln(&help, node.Help, node.Detail)
		for _, flag := range node.Flags {
			fmt.Fprintln(&help, "--"+flag.Name, flag.Help)
		}
		for _, arg := range node.Positional {
			fmt.Fprintln(&help, arg.Name, arg.Help)
		}
		for line := range strings.Lines(help.String()) {
			if strings.Contains(line, "''") || strings.Contains(line, "``") {
				t.Errorf("%s: %s, want no empty quotes", node.FullPath(), line)
			}
		}
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	where := []string{"demo", "--client", linktest.Loopback().String(), "--server", linktest.Loopback().String()}
	out := success(t, where...)
	for _, want := range []string{"SEND First psn=100", "READ Response Last", "FetchAdd", "every one right",
		"there and back", "rdma_sends"} {
		if !strings.Contains(out, want) {
			t.Errorf("demo does not say %q:\n%s", want, out)
		}
	}
	capture := filepath.Join(t.TempDir(), "demo.pcapng")
	out = success(t, append(where, "--drop", "0.05", "--seed", "7", "--ascii", "--pcap", capture)...)
	for _, want := range []string{"X", "lost on purpose", "sent again", "completer_retry_err", capture} {
		if !strings.Contains(out, want) {
			t.Errorf("demo --drop does not say %q:\n%s", want, out)
		}
	}
	if out := success(t, "decode", capture); !strings.Contains(out, " 0 wrong") {
		t.Errorf("goroced decode on the capture, want %q:\n%s", " 0 wrong", out)
	}
	var rep struct {
		Client struct{ Link string }
		Tour   any
	}
	if err := json.Unmarshal([]byte(success(t, "demo", "--memory", "--json")), &rep); err != nil || rep.Tour == nil ||
		rep.Client.Link != "mem" {
		t.Errorf("demo --memory --json: %v, %v; want the tour in memory", rep, err)
	}
}

func TestDevinfo(t *testing.T) {
	addr := linktest.Loopback().String()
	out := success(t, "devinfo", "-v", "--addr", addr)
	for _, want := range []string{"hca_id:\tgoroce_lo\n", "PORT_ACTIVE (4)", "::ffff:" + addr + ", RoCE v2",
		"link_note:\t\tudp, the automatic choice: plain UDP sockets, receive buffer"} {
		if !strings.Contains(out, want) {
			t.Errorf("devinfo -v does not say %q:\n%s", want, out)
		}
	}
	if out := success(t, "devinfo", "-v", "--addr", addr, "--shards", "2"); !strings.Contains(out, ", 2 shards\n") {
		t.Errorf("devinfo -v --shards 2 does not say how many there are:\n%s", out)
	}
	if out := success(t, "devinfo", "-l"); !strings.Contains(out, "\tgoroce_lo\t[127.0.0.1") {
		t.Errorf("devinfo -l, want %q:\n%s", "\tgoroce_lo\t[127.0.0.1", out)
	}
}

func TestExplain(t *testing.T) {
	list := success(t, "explain")
	if !strings.Contains(list, "send-segments") {
		t.Fatalf("explain lists:\n%s", list)
	}
	if out := success(t, "explain", "connect"); !strings.Contains(out, "\n  cm-handshake ") {
		t.Errorf("explain connect, want %q:\n%s", "\n  cm-handshake ", out)
	}
	own := filepath.Join(t.TempDir(), "own.txt")
	text := "# Mine\ngroup: own\n\nWhy.\n\n    setup\n    post send 1 len=10\n    nothing\n"
	if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, code := goroced(t, "explain", own)
	if code != exitFailure || !strings.Contains(p.err.String(), own+":8: nothing: ") ||
		!strings.Contains(p.out.String(), ">    8") {
		t.Errorf("explain FILE: exit code %d, want %d, %q and %q: %s%s", code, exitFailure, own+":8: nothing: ",
			">    8", p.out.String(), p.err.String())
	}
	if out := success(t, "explain", "send-segments"); !strings.Contains(out, "SEND Middle") {
		t.Errorf("explain send-segments, want %q:\n%s", "SEND Middle", out)
	}
}

// freePort returns a TCP port that nobody listens on.
func freePort(t *testing.T) string { return strconv.Itoa(linktest.Port(t)) }

// waitListening returns when a TCP server listens on the port: its socket shows in
// /proc, so that it need not be spoken to. /proc/net is that of the main thread, which
// a test may have left in another network namespace.
func waitListening(t *testing.T, port string) {
	t.Helper()
	var number int
	fmt.Sscan(port, &number)
	want := fmt.Sprintf(":%04X 0", number)
	require.Until(t, "the server listens on port "+port, func() bool {
		for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			text, _ := os.ReadFile(table)
			for line := range strings.Lines(string(text)) {
				if f := strings.Fields(line); len(f) > 3 && strings.Contains(f[1]+" "+f[2], want) && f[3] == "0A" {
					return true
				}
			}
		}
		return false
	})
}

func TestPingpong(t *testing.T) {
	for _, flags := range []string{
		"", "-s 1", "-s 5001 -m 2048", "-s 1048576 -n 5 --ack-timeout 19", "-e", "-m 256 -r 2 -n 100", "-g 0 -l 3",
		"-c -s 20000", "-c -e --drop 0.05 --seed 7 --ack-timeout 16 -n 100", "-d soft",
		"--service uc -c", "--service uc -s 9000 -m 512", "--service ud -c -s 1000", "--service ud -e",
		"--service srq -c -e", "--service srq -q 3",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			addresses := 2 // one of each end, but for srq
			switch {
			case strings.Contains(flags, "-q 3"):
				addresses *= 3
			case strings.Contains(flags, "srq"):
				addresses *= 16
			}
			args := append(strings.Fields("pingpong -n 200 -p "+freePort(t)+" --ack-timeout 18"),
				strings.Fields(flags)...)
			addr := linktest.Loopback().String()
			server := start(t, append(args, "--addr", addr)...)
			waitListening(t, args[4])
			client := start(t, append(args, "--addr", linktest.Loopback().String(), addr)...)
			for name, p := range map[string]*process{"server": server, "client": client} {
				code := p.wait(t)
				if code != 0 || !strings.Contains(p.out.String(), " usec/iter\n") ||
					strings.Count(p.out.String(), "\n") != addresses+2 {
					t.Errorf("%s: exit code %d, want 0 and a row for each of %d:\n%s%s", name, code, addresses,
						p.out.String(), p.err.String())
				}
			}
		})
	}
}

// TestPingpongInterrupted: a server that waits ends at once, and says why.
func TestPingpongInterrupted(t *testing.T) {
	port := freePort(t)
	server := start(t, "pingpong", "--addr", linktest.Loopback().String(), "-p", port)
	waitListening(t, port)
	if err := server.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	want := "goroced: interrupted while waiting for a client on TCP port " + port + "\n"
	if code := server.wait(t); code != exitSignal+int(syscall.SIGINT) || !strings.Contains(server.err.String(), want) {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitSignal+int(syscall.SIGINT), want, server.err.String())
	}
}

// TestPingpongPeerDies: the other end says so, in time.
func TestPingpongPeerDies(t *testing.T) {
	t.Parallel()
	port, addr := freePort(t), linktest.Loopback().String()
	server := start(t, "pingpong", "--addr", addr, "-p", port, "-n", "100000000")
	waitListening(t, port)
	client, _ := startUntil(t, "remote address", "pingpong", "--addr", linktest.Loopback().String(), "-p", port, "-n",
		"100000000", "--timeout", "1s", addr)
	if err := server.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	server.wait(t)
	if code := client.wait(t); code != exitFailure || strings.Count(client.complaint(), "\n") != 1 {
		t.Errorf("exit code %d, want %d and one line: %s", code, exitFailure, client.err.String())
	}
}
