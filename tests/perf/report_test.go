package perf

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// around is a spread with this median.
func around(median, least, most float64) Spread { return Spread{Median: median, Min: least, Max: most} }

func samples(values ...float64) []*Sample {
	var list []*Sample
	for _, v := range values {
		if v == 0 {
			list = append(list, nil)
			continue
		}
		list = append(list, &Sample{Value: v})
	}
	return list
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		bar     Bar
		row, of []*Sample // 0 was not measured
		want    Verdict
		none    bool
	}{
		{"pairs, not medians", least(1, "of"), samples(10, 20, 30), samples(20, 20, 20),
			Verdict{Spread: around(1, 0.5, 1.5), OK: true}, false},
		{"short", least(1.1, "of"), samples(10, 20, 30), samples(20, 20, 20), Verdict{Spread: around(1, 0.5, 1.5)},
			false},
		{"even number", least(1, "of"), samples(10, 30), samples(10, 10), Verdict{Spread: around(2, 1, 3), OK: true},
			false},
		{"gaps", least(1, "of"), samples(0, 20, 30), samples(10, 0, 15), Verdict{Spread: around(2, 2, 2), OK: true},
			false},
		{"ceiling", most(1.3, "of"), samples(12), samples(10), Verdict{Spread: around(1.2, 1.2, 1.2), OK: true}, false},
		{"beyond the ceiling", most(1.3, "of"), samples(15), samples(10), Verdict{Spread: around(1.5, 1.5, 1.5)},
			false},
		{"as much more", over(2, "of"), samples(11, 13), samples(10, 10), Verdict{Spread: around(2, 1, 3), OK: true},
			false},
		{"too much more", over(2, "of"), samples(13), samples(10), Verdict{Spread: around(3, 3, 3)}, false},
		{"alone", least(2, ""), samples(1, 3, 5), nil, Verdict{Spread: around(3, 1, 5), OK: true}, false},
		{"no yardstick", least(2, "of"), samples(1), nil, Verdict{}, true},
		{"not measured", least(2, "of"), samples(0), samples(1), Verdict{}, true},
	} {
		got, ok := judge(c.bar, c.row, c.of)
		if c.want.Bar = c.bar; c.none {
			c.want = Verdict{}
		}
		if ok == c.none || got != c.want {
			t.Errorf("%s: %+v (%v), want %+v", c.name, got, ok, c.want)
		}
	}
}

func TestMeter(t *testing.T) {
	m := newMeter(&Job{Duration: 100 * time.Millisecond})
	at := func(ms int) time.Time { return m.opens.Add(time.Duration(ms) * time.Millisecond) }
	step := func(ms int) {
		m.record(at(ms-2), at(ms))
	}
	step(-20) // warms up
	step(0)   // begins the interval
	for ms := 10; ms <= 100; ms += 10 {
		step(ms)
	}
	step(110) // too late
	r := m.result()
	if r.Messages != 10 || math.Abs(r.Seconds-0.1) > 1e-9 || math.Abs(r.Latency[0]-1000) > 10 {
		t.Errorf("counted %+v, want 10 in 0.1 s, with half round trips of 1 ms", r)
	}
}

// TestMeterLate: an end that has not looked within the interval counts from its start.
func TestMeterLate(t *testing.T) {
	m := newMeter(&Job{Duration: time.Hour})
	m.opens = m.opens.Add(time.Hour) // however late add comes
	m.add(3)
	if r := m.result(); r.Messages != 3 || r.Seconds <= 0 || r.Seconds > 60 {
		t.Errorf("counted %+v, want 3 since the start", r)
	}
}

func TestMerge(t *testing.T) {
	counts, helps := Result{Seconds: 2, CPU: 1, Messages: 10}, Result{Seconds: 1, CPU: 1}
	want := Result{Seconds: 2, CPU: 3, Messages: 10}
	for _, got := range []Result{merge(counts, helps), merge(helps, counts)} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// testReport has a row of every fate.
func testReport() *Report {
	measured := func(values ...float64) []*Sample {
		list := samples(values...)
		for _, s := range list {
			if s != nil {
				s.CPUPerPacketNS = 250
				s.Result = Result{Seconds: 1, Bytes: s.Value * 1e9 / 8, Messages: 1,
					Latency: []float64{s.Value, 10, 20, 30, 40}}
			}
		}
		return list
	}
	row := func(name string, s []*Sample, bars ...Bar) *RowReport {
		return &RowReport{Name: name, Unit: "Gb/s", Samples: s, row: Row{Bars: bars}}
	}
	skipped := row("RC WRITE 64 KiB, afxdp", samples(0, 0, 0))
	skipped.Skipped = "no rights"
	rep := &Report{
		Machine: Machine{CPU: "Test <CPU> & Co", CPUs: 2, Kernel: "6.1", Go: "go1", Load: "0.10"}, Rounds: 3,
		Duration: time.Second,
		Wires: []*WireReport{
			{WireID: WireID{Kind: veth, MTU: 1500}, Rounds: 3, Dropped: 2, Best: 31.4, Rows: []*RowReport{
				row(cubic, measured(50, 40, 60)),
				row(write64K, measured(30, 40, 0), least(0.6, cubic), least(1.3, bbr), least(50, "")),
				row(writePing, measured(5, 6, 7)), skipped, row("broken", samples(0, 0, 0)),
			}},
			{WireID: WireID{Kind: bridge, MTU: 1500, Loss: 1}, Rounds: 3,
				Rows: []*RowReport{row(write64K, measured(0.02, 0.03, 0.04))}},
			{WireID: WireID{Kind: vm, MTU: 1500}, Rounds: 2, Best: 31.4, Rows: []*RowReport{
				row(write4K, measured(0.06, 0.05)), row(rxeName(4<<10), measured(0.05, 0.04))}},
		}}
	rep.judge()
	return rep
}

const wantTable = `2 x Test <CPU> & Co, Linux 6.1, go1, load 0.10 at the start
median of up to 3 rounds of 1s (least to most)

two namespaces, veth, MTU 1500: 3 rounds, and 2 dropped: their bare loop was below 85 % of the best, 31.40 Gb/s
  TCP cubic, one stream    50.00 Gb/s  (40.00 to 60.00)  250 ns/packet
  RC WRITE 64 KiB          35.00 Gb/s  (30.00 to 40.00)  250 ns/packet  0.80 of 0.6 x TCP cubic, one stream: ok (0.60 to 1.00)
                                                                        35.00 of 50: short (30.00 to 40.00)
  RC WRITE 8 B, ping-pong  6.00 Gb/s   (5.00 to 7.00)    250 ns/packet
  RC WRITE 64 KiB, afxdp                                                skipped: no rights
  broken                                                                not measured

two namespaces, bridge, MTU 1500, 1 % of single packets lost: 3 rounds, with no bare loop that tells whether the machine was quiet
  RC WRITE 64 KiB  0.0300 Gb/s  (0.0200 to 0.0400)  250 ns/packet

two emulated guests, MTU 1500: 2 rounds, none dropped
  RC WRITE 4 KiB                         0.0550 Gb/s  (0.0500 to 0.0600)  250 ns/packet
  rdma_rxe RC WRITE 4 KiB (ib_write_bw)  0.0450 Gb/s  (0.0400 to 0.0500)  250 ns/packet
`

func TestWriteTable(t *testing.T) {
	var out strings.Builder
	if err := testReport().WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantTable, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWriteJSON(t *testing.T) {
	var out bytes.Buffer
	rep := testReport()
	if err := rep.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rep.Wires[0].Rows[1].Samples, got.Wires[0].Rows[1].Samples); diff != "" {
		t.Error(diff)
	}
}

func TestWritePlots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plots")
	if err := testReport().WritePlots(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"throughput.svg": {"Test &lt;CPU&gt; &amp; Co", "rdma_rxe, same guests", "WRITE, emulated guests",
			"Medians of 2 to 3 rounds; 2 more were dropped", "median of the rounds", `class="page"`},
		"latency.svg": {"99.99"}, "loss.svg": {"WRITE 64 KiB"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, string(text))
		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
	}
}

// TestEmptyPlots: what was not measured makes no plot.
func TestEmptyPlots(t *testing.T) {
	dir := t.TempDir()
	if err := (&Report{}).WritePlots(dir); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files %v (%v), want none", files, err)
	}
}

func wellFormed(t interface{ Fatalf(string, ...any) }, text string) {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
}

func TestParseRxe(t *testing.T) {
	const printed = `
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : rxe0
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1200             0.00               0.52  		   0.001000
---------------------------------------------------------------------------------------
`
	r, err := parseRxe(printed, 64<<10, 1024, 2)
	if err != nil || math.Abs(r.Gbps()-0.52) > 1e-9 || r.Packets != 64*r.Messages {
		t.Errorf("parsed %+v, %v Gb/s (%v), want 0.52", r, r.Gbps(), err)
	}
	if _, err := parseRxe("Couldn't connect", 64<<10, 1024, 2); err == nil {
		t.Error("parsed what is not there")
	}
}

func TestProfileName(t *testing.T) {
	got := profileName("dir/cpu.out", WireID{Kind: veth, MTU: 1500}, bareRing, true)
	if want := "dir/cpu.veth-1500.bare-ring-loop-AF_XDP-1-100-bytes.far.out"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
