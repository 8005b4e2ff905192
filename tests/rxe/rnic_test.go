package rxe

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goroce/goroce/tests/rxe/lab"
)

// rnicTimeout bounds the tests of package rnic in a guest, which take seconds.
const rnicTimeout = 3 * time.Minute

// TestRnic runs the tests of package rnic in guests, on the kernel's rdma_rxe: with the
// guest's own rdma-core and, if the kernel supports FLUSH, also with that of Debian 13, which
// supports it too: nothing may be skipped there.
func TestRnic(t *testing.T) {
	lab.Require(t, lab.Kernels()...)
	binary := buildRnicTest(t)
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		lab.Row(t, "debian12", func(t testing.TB) { runRnic(t, kernel, binary, lab.Userland{}) })
		if kernel != lab.Linux612 {
			return
		}
		debian13 := lab.Debian13(t)
		lab.Row(t, "debian13", func(t testing.TB) {
			report := runRnic(t, kernel, binary, debian13)
			if !strings.Contains(report, "--- PASS: TestFlush ") {
				t.Error("FLUSH was not tested")
			}
			if skipped := skips.FindString(report); skipped != "" {
				t.Errorf("this kernel and rdma-core have all that the tests need, want none skipped, but: %s", skipped)
			}
		})
	})
}

// skips matches the lines about skipped tests in a guest's report.
var skips = regexp.MustCompile(`.*skipped: .*`)

// runRnic runs the tests in a guest and returns their report.
func runRnic(t testing.TB, kernel lab.Kernel, binary string, user lab.Userland) string {
	vm := lab.Shared(t, kernel).VMs[0]
	ctx, cancel := context.WithTimeout(t.Context(), rnicTimeout)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(vm.CopyIn(ctx, binary, "/bin/rnic.test"))
	must(user.CopyIn(ctx, vm))
	_, err := vm.Output(ctx, "dmesg", "-c")
	must(err)
	command := user.Command([]string{"GOROCE_RNIC=" + lab.RxeDev}, "/bin/rnic.test", "-test.v")
	result, err := vm.Run(ctx, command[0], command[1:]...)
	must(err)
	report := result.Stdout + result.Stderr
	if result.ExitCode != 0 || !strings.Contains(report, "--- PASS: TestReliableSend ") {
		t.Errorf("exit code %d, want 0\n%s", result.ExitCode, report)
	}
	for _, skip := range skips.FindAllString(report, -1) {
		t.Log(strings.TrimSpace(skip))
	}
	log, err := vm.Output(ctx, "dmesg")
	must(err)
	if strings.Contains(log, "WARNING: ") || strings.Contains(log, "BUG: ") {
		t.Errorf("the kernel complains, want it not to:\n%s", log)
	}
	return report
}

// TestRnicRping connects goroced on a guest's RNIC, over librdmacm, by address with goroced's
// software device on the host, in both directions. No objects may be left in the guest's kernel.
func TestRnicRping(t *testing.T) {
	programs := buildCM(t)
	inGuest := buildRNIC(t)
	tool := cmTool{name: "rping", port: 7174,
		server:    "goroced-rnic rping --device rnic:" + lab.RxeDev + " -s -a $VM -S 65535",
		client:    "goroced-rnic rping --device rnic:" + lab.RxeDev + " -c -a $HOST -C 20 -S 65535 -V",
		ourServer: "goroced rping -s -a $HOST -S 65535", ourClient: "goroced rping -c -a $VM -C 20 -S 65535 -V",
		said: "DISCONNECT EVENT", weSay: "DISCONNECT EVENT"}
	lab.ForEachKernel(t, func(t *testing.T, kernel lab.Kernel) {
		rows := []cmRow{{&tool, client, udp, v4, 0}, {&tool, client, udp, v6, 0}, {&tool, server, udp, v4, 0},
			{&tool, server, udp, v6, 0}}
		for _, r := range rowsFor(kernel, rows, cmRow.tool, cmRow.line) {
			lab.Row(t, r.line(), func(t testing.TB) {
				p := newCMPlay(t, programs, kernel, udp, r.family)
				p.must(p.vm.CopyIn(t.Context(), inGuest, "/usr/bin/goroced-rnic"))
				p.run(&r)
			})
		}
	})
}
