package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goroce/goroce/cmd/goroced/internal/admin"
	"github.com/goroce/goroce/roce/daemon/server"
	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// TestWhyStory: when the programs have ended, `goroced why QPN` tells how a connection has failed that loses its
// packets, and writes them to a file that tshark and `goroced decode` read. `goroced capture --on-error` had waited for
// it.
func TestWhyStory(t *testing.T) {
	t.Parallel()
	d := newServed(t)
	dir := t.TempDir()
	onError := filepath.Join(dir, "error.pcapng")
	waits := start(t, with("capture --on-error -o "+onError, d.admin)...)
	t.Cleanup(func() { _ = waits.cmd.Process.Kill() })
	require.Until(t, "the capture waits", func() bool { _, err := os.Stat(onError); return err == nil })
	port := freePort(t)
	const flags = "pingpong --retry 1 --ack-timeout 10 --timeout 2s -p "
	ends := start(t, with(flags+port, d.client)...)
	waitListening(t, port)
	success(t, with("fault add drop --opcode request --direction out --seed 1", d.admin)...)
	client, _ := goroced(t, with(flags+port+" "+d.addr, d.client)...)
	ends.wait(t)
	if text := client.err.String() + ends.err.String(); !strings.Contains(text, "`goroced why 0x") {
		t.Errorf("no tool says where its story is:\n%s", text)
	}
	var failures []server.FailureInfo
	if err := json.Unmarshal([]byte(success(t, with("why --json", d.admin)...)), &failures); err != nil ||
		len(failures) == 0 {
		t.Fatalf("got %d failures, %v; want some", len(failures), err)
	}
	qpn := fmt.Sprintf("%#x", failures[0].QPN)
	out := success(t, with("why "+qpn, d.admin)...)
	for _, want := range []string{"has failed: SEND: the packet with PSN", "look at: is the peer's QP in RTR or RTS",
		"no answer for psn", "0 retries left", "RTS to ERR", "transport retry counter exceeded"} {
		if !strings.Contains(out, want) {
			t.Errorf("got a story without %q:\n%s", want, out)
		}
	}
	var stories []admin.Why
	text := success(t, with("why --json "+qpn, d.admin)...)
	if err := json.Unmarshal([]byte(text), &stories); err != nil || len(stories) != 1 ||
		len(stories[0].Ladder.Events) < 5 {
		t.Errorf("got %v, want one with 5 events or more, of\n%s", err, text)
	}
	file := filepath.Join(dir, "story.pcapng")
	success(t, with("why --pcap "+file+" "+qpn, d.admin)...)
	for _, f := range []string{file, onError} {
		if f == onError {
			if code := waits.wait(t); code != 0 || !strings.Contains(waits.err.String(), qpn+": SEND") {
				t.Errorf("capture --on-error ends with %d, want 0 and %q: %s", code, qpn+": SEND", waits.err.String())
			}
		}
		if out := success(t, "decode", f); !strings.Contains(out, "SEND First psn=") {
			t.Errorf("goroced decode %s, want %q:\n%s", f, "SEND First psn=", out)
		}
		tshark := exec.Command(require.Command(t, "tshark"), "-n", "-r", f, "-T", "fields", "-e",
			"infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn")
		out, err := tshark.Output()
		if err != nil || !strings.HasPrefix(string(out), "0\t0x") { // SEND First
			t.Errorf("tshark of %s: %v, want its packets\n%s", f, err, out)
		}
	}
}

// TestToolTellsStory: a tool that has a device of its own, and whose connection fails, shows how it ended.
func TestToolTellsStory(t *testing.T) {
	t.Parallel()
	port, addr := freePort(t), linktest.Loopback().String()
	server := start(t, "pingpong", "--addr", addr, "-p", port, "--retry", "1", "--ack-timeout", "10", "--timeout",
		"2s")
	waitListening(t, port)
	client, code := goroced(t, "pingpong", "--addr", linktest.Loopback().String(), "-p", port, "--drop", "0.99",
		"--seed",
		"1", "--retry", "1", "--ack-timeout", "10", "--timeout", "2s", addr)
	server.wait(t)
	if text := client.err.String(); code != exitFailure || !strings.Contains(text, "0 retries left") ||
		!strings.Contains(text, "transport retry counter exceeded") {
		t.Errorf("got exit code %d, want %d, %q and %q, and\n%s", code, exitFailure, "0 retries left",
			"transport retry counter exceeded", text)
	}
}
