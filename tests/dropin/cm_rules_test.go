//go:build linux

package dropin

import (
	"strings"
	"testing"

	"github.com/goroce/goroce/tests/linktest"
	"github.com/goroce/goroce/tests/require"
)

// ruleDeviations are the lines of testdata/cm_rules.txt where the library differs: what it prints instead, and why.
var ruleDeviations = map[string]deviation{
	"resolve 127.0.0.1: ok, ADDR_RESOLVED status 0, local 127.0.0.1, remote 127.0.0.1": {
		"resolve 127.0.0.1: ok, ADDR_RESOLVED status 0, local DEVICE4, remote DEVICE4", standsFor},
	"bind 127.0.0.1: ok, local 127.0.0.1, device no, listen ok": {
		"bind 127.0.0.1: ok, local DEVICE4, device yes, listen ok", standsFor},
	"resolve ::1: ok, ADDR_RESOLVED status 0, local ::1, remote ::1": {
		"resolve ::1: ok, ADDR_RESOLVED status 0, local LINKLOCAL, remote LINKLOCAL", standsFor},
	"bind ::1: ok, local ::1, device no, listen ok": {
		"bind ::1: ok, local LINKLOCAL, device yes, listen ok", standsFor},
	"resolve 0.0.0.0: ok, ADDR_RESOLVED status 0, local 127.0.0.1, remote 0.0.0.0": {
		"resolve 0.0.0.0: ok, ADDR_RESOLVED status 0, local DEVICE4, remote DEVICE4", standsFor},
	"resolve ::: ok, ADDR_RESOLVED status 0, local ::1, remote ::": {
		"resolve ::: ok, ADDR_RESOLVED status 0, local LINKLOCAL, remote LINKLOCAL", standsFor},
	"port 1023 as an ordinary user: EACCES": {
		"port 1023 as an ordinary user: ok", "the daemon is this user's own, who may use all of its ports"},
	"before the passive end disconnects: active no event": {
		"before the passive end disconnects: active an event", "a DREQ is answered when it comes (IBTA 12.6.11), so " +
			"the active end need not wait for a program that is busy, or never disconnects; both have their event"},
}

const standsFor = "an ID has the device's address that the loopback address stands for"

// wildcardInUse replaces the errno that the kernel has if one of two overlapping addresses is a wildcard. The library
// has that of bind(2): programs that take it for a port in use, and try the next one, are right.
func wildcardInUse(line string) string {
	if strings.HasPrefix(line, "one port, ") {
		return strings.ReplaceAll(line, "EADDRNOTAVAIL", "EADDRINUSE")
	}
	return line
}

// TestCMRules: the library obeys the rules of the kernel's rdma_cm, which tests/rxe has recorded.
func TestCMRules(t *testing.T) {
	require.Root(t)
	program := compile(t, "testdata/cm_rules.c", "-lrdmacm", "-libverbs")
	ns, _ := linktest.NewVeth(t, 1500)
	out, err := blueHost(t, ns).run(t, program, ns.Addr4.String(), ns.Addr6.String()).wait(t)
	compareWithKernel(t, "testdata/cm_rules.txt", out, err, ruleDeviations, wildcardInUse)
}
