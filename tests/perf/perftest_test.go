package perf

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const rule = "---------------------------------------------------------------------------------------\n"

// TestTools: what the programs of Debian 12 print.
func TestTools(t *testing.T) {
	const header = rule + " Dual-port       : OFF\t\tDevice         : roce0\n GID: 00:00:255:255:127:00:00:77\n" + rule
	for _, c := range []struct {
		name, tool, out string
		size            int
		want            Result
	}{
		{"by time", "ib_write_bw", header +
			" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n" +
			" 65536      25000            0.00               1562.50  \t\t   0.025000\n" + rule, 64 << 10,
			Result{Seconds: 1, Messages: 25000, Bytes: 25000 * 65536, Packets: 25000 * 64}},
		{"by number", "ib_write_bw", header +
			" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n" +
			" 8          5000             0.024313            0.002658            0.040000\n", 8,
			Result{Seconds: 0.125, Messages: 5000, Bytes: 40000, Packets: 5000}},
		{"latency, a deviation that is no number", "ib_send_lat", header +
			" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec] \n" +
			" 8       10000          12.76          143560.68      12.50    \t       128.06      \t-nan   \n", 8,
			Result{Seconds: 0.25, Messages: 10000, Bytes: 160000, Packets: 20000, Latency: []float64{12.5}}},
	} {
		got, err := tools[c.tool].parse(c.out, &Job{Tool: c.tool, Size: c.size, MTU: 1500})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestToolsFail: a program that prints no figure has none.
func TestToolsFail(t *testing.T) {
	for _, out := range []string{"", "Couldn't connect to 10.99.0.2:18515\n", " #bytes #iterations\n", " #bytes",
		" #bytes #iterations\n" + rule, " #bytes #iterations\n 8 5000 x 1 2\n"} {
		if r, err := tools["ib_write_bw"].parse(out, &Job{Tool: "ib_write_bw", MTU: 1500}); err == nil {
			t.Errorf("%q is %+v, want an error", out, r)
		}
	}
	r, err := tools["ib_write_bw"].parse(" #bytes\n 8 0 0.00 0.00 0.000000\n", &Job{Size: 8, MTU: 1500})
	if err != nil || !math.IsNaN(mmps.of(&r)) {
		t.Errorf("nothing in no time is %v (%v), want no number, for which a measurement fails", mmps.of(&r), err)
	}
}

func TestStraceCalls(t *testing.T) {
	const printed = "    calls\n---------\n        9 write\n        1 prlimit64\n---------\n       29 total\n"
	if n, err := straceCalls("strace: Process 7 attached\n" + printed); n != 20 || err != nil {
		t.Errorf("%d, %v, want all but the writes", n, err)
	}
	if n, err := straceCalls("strace: ptrace(PTRACE_SEIZE, 7): Operation not permitted\n"); err == nil {
		t.Errorf("%d calls where none were counted, want an error", n)
	}
}

func TestListens(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4653 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:4654 0100007F:9000 01 00000000:00000000 00:00000000 00000000     0        0 2
`
	for port, want := range map[int]bool{0x4653: true, 0x4654: false, 0x9000: false, 0x53: false} {
		if got := listens(table, port); got != want {
			t.Errorf("port %#x listens: %v, want %v", port, got, want)
		}
	}
}
