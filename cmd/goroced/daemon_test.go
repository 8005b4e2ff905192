package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/devinfo"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// served is a daemon of this program, on loopback.
type served struct {
	*process
	addr          string
	client, admin []string // flags that lead to it
}

func newServed(t *testing.T, flags ...string) *served {
	t.Helper()
	return newServedIn(t, t.TempDir(), flags...)
}

// newServedIn has the daemon's sockets in a folder.
func newServedIn(t *testing.T, dir string, flags ...string) *served {
	t.Helper()
	addr := linktest.Loopback().String()
	socket, admin := filepath.Join(dir, "s"), filepath.Join(dir, "a")
	args := append([]string{"serve", "--config", configFile(t, ""), "--socket", socket, "--admin", admin, "--addr",
		addr}, flags...)
	p, _ := startUntil(t, "msg=ready", args...)
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.wait(t); code != 0 {
			t.Errorf("the daemon ended with %d, want 0: %s", code, p.err.String())
		}
	})
	return &served{p, addr, []string{"--socket", socket}, []string{"--admin", admin}}
}

// env leads programs to the daemon, and to no other of the machine.
func (d *served) env() []string {
	return []string{"GOROCED_SOCKET=" + d.client[1], "GOROCED_ADMIN=" + d.admin[1]}
}

// isTheirs has env for all programs of the test.
func (d *served) isTheirs(t *testing.T) {
	t.Helper()
	for _, v := range d.env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

func with(args string, flags []string) []string { return append(strings.Fields(args), flags...) }

// TestThroughDaemon runs tools through two daemons.
func TestThroughDaemon(t *testing.T) {
	t.Parallel()
	a, b := newServed(t), newServed(t)
	if out := success(t, with("devinfo", a.client)...); !strings.Contains(out, "PORT_ACTIVE") {
		t.Errorf("devinfo says %s, want %q", out, "PORT_ACTIVE")
	}
	for _, tool := range []string{"pingpong -c -n 100", "pingpong --service ud -c -n 100", "perf write bw -n 200",
		"perf send lat -n 200", "perf read bw -n 100 -e"} {
		port := freePort(t)
		p := start(t, with(tool+" -p "+port, a.client)...)
		waitListening(t, port)
		success(t, with(tool+" -p "+port+" 127.0.0.1", b.client)...)
		p.done(t, tool)
	}
	for _, c := range []struct{ args, want string }{
		{"devinfo --netif lo", "--netif is for a device of this program's own"},
		{"devinfo --device mlx5_0", "goroce_lo"},
	} {
		p, code := goroced(t, with(c.args, a.client)...)
		if code != exitFailure || !strings.Contains(p.err.String(), c.want) {
			t.Errorf("%s: exit code %d, want %q in: %s", c.args, code, c.want, p.err.String())
		}
	}
	p, code := goroced(t, "devinfo", "--socket", filepath.Join(t.TempDir(), "none"))
	if code != exitFailure || !strings.Contains(p.err.String(), "goroced serve") {
		t.Errorf("no daemon: exit code %d, want %d and %q: %s", code, exitFailure, "goroced serve", p.err.String())
	}
}

// TestConnectThroughDaemon runs tools of rdma_cm through two daemons that touch no memory of
// clients but what these share, as daemons do for other users than their own.
func TestConnectThroughDaemon(t *testing.T) {
	t.Parallel()
	const none = "memory.own_processes=false"
	a, b := newServed(t, "--set", none), newServed(t, "--set", none)
	server, port := serve(t, with("rping -s -C 3 -V -a "+a.addr, a.client)...)
	success(t, with("rping -c -C 3 -V -a "+a.addr+" -p "+port, b.client)...)
	server.done(t, "rping -s")
	stream, port := serve(t, with("rstream -S 65536 -I 10", a.client)...)
	success(t, with("rstream -S 65536 -I 10 -s "+a.addr+" -p "+port, b.client)...)
	stream.done(t, "rstream")
}

// TestCaptureBothEnds: in a capture of a daemon that has both ends of a conversation, each packet is sent and received,
// and is one. A machine that stalls has packets sent again; what is received is never a problem of its own.
func TestCaptureBothEnds(t *testing.T) {
	t.Parallel()
	d := newServed(t, "--shards", "1") // with several, one may capture a received packet before another the sent one
	file := filepath.Join(t.TempDir(), "x.pcapng")
	capture := start(t, with("capture -o "+file, d.admin)...)
	waitFile(t, file)
	server, port := serve(t, with("rping -s -C 3 -V -a "+d.addr, d.client)...)
	success(t, with("rping -c -C 3 -V -a "+d.addr+" -p "+port, d.client)...)
	server.done(t, "rping -s")
	if err := capture.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	capture.done(t, "capture")
	copies := 0
	for line := range strings.Lines(success(t, "decode", "--json", file)) {
		var p struct {
			Direction string
			Copy_Of   int
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Direction == "received" && p.Copy_Of == 0 {
			t.Errorf("no copy of what was sent, want one: %s", line)
		}
		copies += min(p.Copy_Of, 1)
	}
	if copies < 20 {
		t.Errorf("%d copies, want at least 20:\n%s", copies, success(t, "decode", file))
	}
}

// TestViews: what a daemon shows of a client that has come, in the layouts of the tools
// that show the kernel's.
func TestViews(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	client := d.waits(t)
	pid := strconv.Itoa(client.cmd.Process.Pid)
	listener, port := serve(t, with("rping -s -a "+d.addr, d.client)...)
	t.Cleanup(func() { _ = listener.cmd.Process.Kill() })
	for _, c := range []struct{ args, want string }{
		{"devices",
			`(?m)^    device          	   node GUID\n    ------          	-{16}\n    goroce_lo       	[0-9a-f]{16}\n$`},
		{"status", `(?m)\Agoroced .*, process \d+, for .*: \d connections of 1 user\n` +
			`goroce_lo: active for \d+s, interface lo, link udp, MTU 4096, 1 shard\n    GID 0: ` + d.addr +
			`\n    sent .* B, received .* B\nuser .*, 1 queue pair, \d memory regions?, .*B pinned\n\z`},
		{"status --rdma", `^link goroce_lo/1 state ACTIVE physical_state LINK_UP netdev lo \n$`},
		{"qp", `(?m)^link goroce_lo/1 lqpn \d+ rqpn 0 type RC state INIT .* pid ` + pid + ` comm goroced`},
		{"mr", `(?m)^dev goroce_lo mrn \d+ rkey 0x[0-9a-f]+ lkey 0x[0-9a-f]+ iova 0x[0-9a-f]+ mrlen \d+ pid ` + pid +
			` comm goroced memory memfd$`},
		{"cm", `^link goroce_lo/1 state LISTEN ps TCP pid \d+ comm goroced src-addr ` + d.addr + `:` + port},
		{"top -i 10ms", `(?m)^1 queue pairs of 1 processes.*\nDEVICE .*\ngoroce_lo +0x[0-9a-f]+ +RC +INIT .* ` + pid + `  goroced`},
		{"top -i 10ms -p", `(?m)^DEVICE +QPS .*\ngoroce_lo +1 .* ` + pid + `  goroced`},
		{"stat", `(?m)\A +goroce_lo +total\n +sent_bytes .*B\n +rcvd_bytes .*B\n`},
		{"stat --rdma", `^link goroce_lo/1 sent_pkts \d+ rcvd_pkts \d+ duplicate_request 0 `},
	} {
		if out := success(t, with(c.args, d.admin)...); !regexp.MustCompile(c.want).MatchString(out) {
			t.Errorf("%s says\n%s\nwant %s", c.args, out, c.want)
		}
		var v any
		if err := json.Unmarshal([]byte(success(t, with(c.args+" --json", d.admin)...)), &v); err != nil {
			t.Errorf("%s --json: %v", c.args, err)
		}
	}
	var qps []server.QPInfo
	if err := json.Unmarshal([]byte(success(t, with("qp --json", d.admin)...)), &qps); err != nil || len(qps) != 1 ||
		qps[0].UID != uint32(os.Getuid()) {
		t.Errorf("qp --json: %+v, %v; want 1 of user %d", qps, err, os.Getuid())
	}
	for _, view := range []string{"devices", "status", "qp", "mr", "cm", "stat", "top"} {
		p, code := goroced(t, with(view+" -d other", d.admin)...)
		if code != exitFailure || p.out.String() != "" || !strings.Contains(p.err.String(), "allowed: goroce_lo") {
			t.Errorf("%s of a device that is not there: exit code %d, want %d and %q: %s%s", view, code, exitFailure,
				"allowed: goroce_lo", p.out.String(), p.err.String())
		}
		if out := success(t, with(view+" --device goroce_lo", d.admin)...); !strings.Contains(out, "goroce_lo") {
			t.Errorf("%s of a device, want %q:\n%s", view, "goroce_lo", out)
		}
	}
	var status struct{ Users []server.Usage }
	if err := json.Unmarshal([]byte(success(t, with("status --json", d.admin)...)), &status); err != nil ||
		len(status.Users) != 1 ||
		status.Users[0].UID != uint32(os.Getuid()) || status.Users[0].Amount["connections"] != 2 ||
		status.Users[0].Amount["qps"] != 1 {
		t.Errorf("status --json: %+v, %v; want user %d with 2 connections and 1 QP", status, err, os.Getuid())
	}
}

// TestWatch: what was added each time, in lines for a pipe.
func TestWatch(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	cmd := exec.Command(program, with("stat --watch -i 1ms --json", d.admin)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	next := func() uint64 {
		t.Helper()
		var added map[string]map[string]uint64
		if !lines.Scan() {
			t.Fatalf("it ends: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &added); err != nil || added["goroce_lo"] == nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		return added["goroce_lo"]["rdma_sends"]
	}
	if n := next(); n != 0 {
		t.Errorf("%d sends before any, want none", n)
	}
	success(t, append([]string{"demo"}, d.client...)...)
	for next() == 0 { // it has waited in the pipe
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if p, code := goroced(t, with("stat -w -i 0s", d.admin)...); code != exitUsage ||
		!strings.Contains(p.err.String(), "more than 0") {
		t.Errorf("exit code %d, want %d and %q: %s", code, exitUsage, "more than 0", p.err.String())
	}
}

// TestWatchPackets: the packets of a daemon are explained as they come, those of the connection managers in the ladder
// of the connection that they make.
func TestWatchPackets(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	all, _ := startUntil(t, "as they come", with("watch --width 240", d.admin)...)
	ladders, _ := startUntil(t, "as they come", with("watch --ladder", d.admin)...)
	server, port := serve(t, with("rping -s -a "+d.addr, d.client)...)
	success(t, with("rping -c -C 3 -V -a "+d.addr+" -p "+port, d.client)...)
	server.done(t, "rping -s")
	require.Until(t, "the last packet is shown", func() bool { return strings.Contains(all.out.String(), "CM DREP") })
	for _, p := range []*process{all, ladders} {
		if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		p.done(t, "watch")
	}
	ladder := regexp.MustCompile(`(?s)CM REQ[^\n]*\n.*CM RTU.*SEND Only.*CM DREQ.*\n\nwatched`)
	if out := ladders.out.String(); !ladder.MatchString(out) {
		t.Errorf("got\n%s\nwant the connection from the REQ on in one ladder", out)
	}
	if out := all.out.String(); !strings.Contains(out, "watched: ") || !strings.Contains(out, "READ 1 (#") {
		t.Errorf("got\n%s\nwant what packets mean, and a summary", out)
	}
}

// TestBugreport: a report has all parts, and no address of the daemon.
func TestBugreport(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	file := filepath.Join(t.TempDir(), "report")
	success(t, with("bugreport -o "+file, d.admin)...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Linux ", "goroced version", "interface lo, link udp", "link goroce_lo/1 sent_pkts",
		"no queue pair has failed", "socket_mode"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the report:\n%s", want, text)
		}
	}
}

// TestDevinfoThroughDaemon: lists, and JSON.
func TestDevinfoThroughDaemon(t *testing.T) {
	d := newServed(t)
	if out := success(t, with("devinfo -l", d.client)...); out != "1 HCA found:\n\tgoroce_lo\n\n" {
		t.Errorf("devinfo -l says %q, want %q", out, "1 HCA found:\n\tgoroce_lo\n\n")
	}
	var infos []devinfo.Info
	if err := json.Unmarshal([]byte(success(t, with("devinfo --json", d.client)...)), &infos); err != nil ||
		len(infos) != 1 || infos[0].Name != "goroce_lo" ||
		infos[0].Ports[0].GIDs[0].GID.Unmap().String() != d.addr {
		t.Errorf("devinfo --json: %+v, %v; want goroce_lo with %s", infos, err, d.addr)
	}
	var found []devinfo.Found
	if err := json.Unmarshal([]byte(success(t, "devinfo", "-l", "--json")), &found); err != nil || len(found) == 0 {
		t.Errorf("devinfo -l --json: %+v, %v; want some", found, err)
	}
}

// TestDemoThroughDaemon: the packets are those of the daemon; who may not capture them
// sees the rest, and why.
func TestDemoThroughDaemon(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	type report struct {
		Tour []struct {
			Title, Result string
			Packets       []struct{ From, Packet string }
		}
		No_Packets string
	}
	demo := func(flags ...string) (r report) {
		t.Helper()
		if err := json.Unmarshal([]byte(success(t, append([]string{"demo", "--json"}, flags...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := demo(append(d.client, d.admin...)...)
	want := map[string]string{
		"SEND": "client SEND First, client SEND Middle, client SEND Last, server ACK",
		// The daemon sends a WRITE in packets that stand for themselves.
		"RDMA WRITE": "client WRITE Only, client WRITE Only, client WRITE Only, server ACK",
		"RDMA READ": "client READ Request, server READ Response First, server READ Response Middle, server READ " +
			"Response Last",
		"Atomics": "client CmpSwap, server ATOMIC ACK, client FetchAdd, server ATOMIC ACK",
	}
	seen := map[string]bool{} // a slow machine has some sent again, late ACKs too
	for _, e := range r.Tour {
		var labels []string
		for _, p := range e.Packets {
			name, rest, _ := strings.Cut(p.Packet, " psn=")
			psn, _, _ := strings.Cut(rest, " ")
			if id := p.From + name + psn; !seen[id] {
				seen[id] = true
				labels = append(labels, p.From+" "+name)
			}
		}
		if got := strings.Join(labels, ", "); got != want[e.Title] {
			t.Errorf("%s: %s; want %s", e.Title, got, want[e.Title])
		}
	}
	if len(r.Tour) != len(want) || r.No_Packets != "" {
		t.Errorf("%d exchanges, %s; want %d with packets", len(r.Tour), r.No_Packets, len(want))
	}
	none := filepath.Join(t.TempDir(), "none")
	if r := demo(append(d.client, "--admin", none)...); len(r.Tour) != len(want) ||
		!strings.Contains(r.No_Packets, none) {
		t.Errorf("without the admin socket: %d exchanges, %s; want %d and %q", len(r.Tour), r.No_Packets, len(want),
			none)
	}
	p, code := goroced(t, append([]string{"demo", "--drop", "0.1"}, d.client...)...)
	if code != exitUsage || !strings.Contains(p.err.String(), "goroced fault") {
		t.Errorf("--drop: exit code %d, want %d and %q: %s", code, exitUsage, "goroced fault", p.err.String())
	}
}
