package dropin

import (
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goroce/goroce/roce/daemon/abi"
	"github.com/goroce/goroce/tests/require"
)

// TestVerbsFaults: whatever call of the C library fails in a verb, descriptor, mapping, memory, request or reply, the
// verb changes both the program's side and the daemon's, or none, or the connection ends. Nothing is left at the daemon
// that the program cannot close.
func TestVerbsFaults(t *testing.T) {
	program := compileVerbs(t, "testdata/verbs_faults.c")
	asked := map[abi.Op]bool{}
	for _, memory := range []string{"", "process"} { // moved to a file where that is possible, and never
		h := newHost(t, nil)
		fails := func(verb string) []string { return []string{"env", "GOROCE_MR=" + memory, program, verb} }
		list := h.run(t, program).ok(t)
		without := h.heldAfter(t, asked, nil, fails("none")...)
		for verb := range strings.Lines(list) {
			verb = strings.TrimSpace(verb)
			if strings.ContainsAny(verb, " :") { // the last lines
				continue
			}
			t.Run(memory+"/"+verb, func(t *testing.T) { h.heldAfter(t, asked, without, fails(verb)...) })
		}
	}
	for _, op := range abi.Ops() {
		if !asked[op] && !slices.Contains(cmRequests, op) && !slices.Contains(nothingChanges, op) {
			t.Errorf("no verb makes the request %v: add one, or say why both sides cannot differ after it", op)
		}
	}
}

// cmRequests are the requests of connections by address that change what libgoroce-sys.so keeps.
var cmRequests = []abi.Op{abi.OpOpenCM, abi.OpCreateCMID, abi.OpCMEvent, abi.OpCMBind, abi.OpCMListen,
	abi.OpCMResolveAddr, abi.OpCMResolveRoute, abi.OpCMJoin, abi.OpCMSetOption, abi.OpCMMigrate}

// nothingChanges are the requests after which both sides cannot differ: those that only ask, those about an ID of which
// libgoroce-sys.so keeps nothing but a cookie, and those that the libraries do not make.
var nothingChanges = []abi.Op{abi.OpQueryPort, abi.OpGIDs, abi.OpPKey, abi.OpClock, abi.OpQuerySRQ, abi.OpQueryQP,
	abi.OpQPFailure, abi.OpQueryDevice, abi.OpCounters, abi.OpCMQuery, abi.OpCMInitQPAttr,
	abi.OpCMConnect, abi.OpCMAccept, abi.OpCMEstablish, abi.OpCMReject, abi.OpCMDisconnect, abi.OpCMNotify,
	abi.OpModifyAH, abi.OpCMDelay, abi.OpCMLeave, abi.OpHold}

// TestCMFaults: whatever call fails that libgoroce-sys.so makes for a command of rdma_cm, the command can be written
// again, or the connection to the daemon ends and the program hears of it. Nothing is left at the daemon.
func TestCMFaults(t *testing.T) {
	program := compileCM(t, "testdata/cm_faults.c")
	h := newHost(t, nil)
	list := h.run(t, program, h.addr.String()).ok(t)
	asked := map[abi.Op]bool{}
	without := h.heldAfter(t, asked, nil, program, h.addr.String(), "none")
	for operation := range strings.Lines(list) {
		operation = strings.TrimSpace(operation)
		if strings.ContainsAny(operation, " :") { // the last line, of goroced
			continue
		}
		t.Run(operation, func(t *testing.T) {
			h.heldAfter(t, asked, without, program, h.addr.String(), operation)
		})
	}
	for _, op := range cmRequests {
		if !asked[op] {
			t.Errorf("no operation makes the request %v", op)
		}
	}
}

// heldAfter runs a program until it has closed all, and returns what the daemon has for it then, which must be what
// want says unless that is nil. It adds the requests that the program made while calls failed to asked.
func (h *host) heldAfter(t *testing.T, asked map[abi.Op]bool, want map[string]int64, args ...string) (
	held map[string]int64) {
	t.Helper()
	cmd := exec.Command(goroced, append([]string{"run", "--socket", h.socket, "--"}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := h.launch(t, cmd)
	require.Until(t, "all is closed", func() bool {
		p.mustRun(t)
		return strings.Contains(p.out.String(), "all is closed")
	})
	noteRequests(t, asked, p.out.String())
	held = h.awaitHeld(t, want)
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	t.Log(p.ok(t))
	return held
}

// awaitHeld waits until the daemon has for its only user what want says; nil for whatever it has.
func (h *host) awaitHeld(t *testing.T, want map[string]int64) (held map[string]int64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("got at the daemon %v when all is closed, want %v", held, want)
		}
	}()
	require.Until(t, "the daemon has ended what the program has closed", func() bool {
		var status struct {
			Users []struct{ Amount map[string]int64 }
		}
		if h.view(t, "status", &status); len(status.Users) == 1 {
			held = status.Users[0].Amount
			// A connection keeps what it took for the first region of memory of the process.
			held["descriptors"] -= held["threads"]
			held["threads"] = 0
		}
		return held != nil && (want == nil || maps.Equal(held, want))
	})
	return held
}

// noteRequests adds the requests that a program says it has made.
func noteRequests(t *testing.T, asked map[abi.Op]bool, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		list, ok := strings.CutPrefix(line, "requests:")
		if !ok {
			continue
		}
		for _, number := range strings.Fields(list) {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			asked[abi.Op(n)] = true
		}
	}
}
