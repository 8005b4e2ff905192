package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
)

// TestGIDFlag: where an index of the GID table is asked, an address is taken, too.
func TestGIDFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]gidFlag{
		"-1": {index: -1}, "3": {index: 3}, "10.77.0.1": {index: -1, addr: netip.MustParseAddr("10.77.0.1")},
		"fe80::1%eth0": {index: -1, addr: netip.MustParseAddr("fe80::1")},
	} {
		var got gidFlag
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	first, second, third := linktest.Loopback().String(), linktest.Loopback().String(), linktest.Loopback().String()
	b := netip.MustParseAddr(second).As4()
	for _, c := range []struct{ command, says string }{
		{"pingpong -n 10 -g ", "GID ::ffff:" + second},
		{"perf write bw -n 10 -x ", fmt.Sprintf("255:255:%02d:%02d:%02d:%02d", b[0], b[1], b[2], b[3])},
	} {
		port := freePort(t)
		server := start(t, strings.Fields(c.command+second+" --addr "+first+" --addr "+second+" -p "+port)...)
		waitListening(t, port)
		client := start(t, strings.Fields(c.command+third+" --addr "+third+" -p "+port+" "+second)...)
		client.done(t, c.command, c.says)
		server.done(t, c.command)
	}
	p := start(t, "pingpong", "--addr", first, "-g", "10.9.9.9")
	if code := p.wait(t); code != exitUsage || !strings.Contains(p.err.String(), "--gid-idx is 10.9.9.9") ||
		!strings.Contains(p.err.String(), "one of "+first) {
		t.Errorf("an address that the device lacks: exit code %d, want %d, %q and %q: %s", code, exitUsage,
			"--gid-idx is 10.9.9.9", "one of "+first, p.err.String())
	}
}
