package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/ib"
	"github.com/goroce/goroce/tests/linktest"
)

// asCommand makes the test binary the command itself.
const asCommand = "GOROCE_CONFORMANCE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestTwoProcesses leads here and serves in another process.
func TestTwoProcesses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	addr := linktest.Loopback()
	server := exec.CommandContext(ctx, os.Args[0], "serve", "-device", "udp:"+addr.String(), "-listen", "127.0.0.1:0")
	server.Env = append(os.Environ(), asCommand+"=1")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, peer, found := strings.Cut(strings.TrimSpace(line), " serves on ")
	if err != nil || !found {
		t.Fatalf("the server says %q: %v", line, err)
	}
	for range 2 { // one leader after another
		var report bytes.Buffer
		args := []string{"run", "-device", fmt.Sprintf("udp:%v", linktest.Loopback()), "-peer", peer, "-case",
			"[s-w]*/**", "-v"}
		if err := run(ctx, args, &report); err != nil || strings.Count(report.String(), "\nok ") < 100 {
			t.Errorf("%v, want 100 or more that are ok\n%s", err, report.Bytes())
		}
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server, told to end: %v", err)
	}
}

// TestArguments: what is wrong with a command line is said.
func TestArguments(t *testing.T) {
	addr := linktest.Loopback().String()
	for _, c := range []struct {
		args []string
		err  error
		text string
	}{
		{nil, errUsage, "serve|run|list"},
		{[]string{"play"}, errUsage, "serve|run|list"},
		{[]string{"run", "-device", "nosuch:0"}, ib.ErrInvalid, "rawsock:IFACE"},
		{[]string{"serve", "-device", "udp:" + addr, "-gid", "10.9.9.9"}, ib.ErrInvalid, "10.9.9.9"},
		{[]string{"run", "-device", "udp:" + addr, "-peer", "127.0.0.1:1"}, nil, "conformance serve"},
		{[]string{"run", "-device", "rnic:nosuch0"}, nil, ""},
	} {
		err := run(t.Context(), c.args, new(bytes.Buffer))
		if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v, want %q", c.args, err, c.text)
		}
	}
	var list bytes.Buffer
	if err := run(t.Context(), []string{"list"}, &list); err != nil ||
		!strings.Contains(list.String(), "alone states/post-send/RTR") {
		t.Errorf("%v, want %q\n%s", err, "alone states/post-send/RTR", list.Bytes())
	}
}
