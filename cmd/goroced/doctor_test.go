package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/link/linktest"
)

// TestDoctor: exit code 1 and one line on standard error if something fails.
func TestDoctor(t *testing.T) {
	addr := linktest.Loopback().String()
	if out := success(t, "doctor", "--addr", addr, addr); !strings.Contains(out, "ok    port       UDP port 4791 is free\n") ||
		!strings.Contains(out, "ok    route      "+addr+" by lo") || !strings.Contains(out, " 0 fail\n") {
		t.Errorf("doctor:\n%s", out)
	}
	hold, err := net.ListenPacket("udp", net.JoinHostPort(addr, "4791"))
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	p, code := goroced(t, "doctor", "--addr", addr, "--json")
	var report struct {
		OK       bool
		Findings []struct{ Check, Status, Text, Remedy, Command string }
	}
	if err := json.Unmarshal(p.out.Bytes(), &report); err != nil || report.OK || code != exitFailure {
		t.Errorf("doctor --json: exit code %d, %v:\n%s", code, err, p.out.String())
	}
	failed := 0
	for _, f := range report.Findings {
		if f.Status == "fail" {
			failed++
			if f.Check != "port" || !strings.HasPrefix(f.Command, "kill ") {
				t.Errorf("%+v", f)
			}
		}
	}
	if failed != 1 || strings.Count(p.err.String(), "\n") != 1 {
		t.Errorf("%d failures; standard error:\n%s", failed, p.err.String())
	}
}
